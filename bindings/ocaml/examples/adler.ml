(* Adler-32, of which the checksums of parts can be joined. *)

type t = { a : int; b : int; bytes : int }

let base = 65521
let empty = { a = 1; b = 0; bytes = 0 }

let of_buffer (buf : Cringle.buffer) bytes =
  let a = ref 1 and b = ref 0 in
  for i = 0 to bytes - 1 do
    a := (!a + Char.code (Bigarray.Array1.unsafe_get buf i)) mod base;
    b := (!b + !a) mod base
  done;
  { a = !a; b = !b; bytes }

(* The checksum of one text after the other. *)
let append x y =
  { a = (x.a + y.a + base - 1) mod base;
    b = (x.b + y.b + (y.bytes mod base * (x.a + base - 1))) mod base;
    bytes = x.bytes + y.bytes }

let to_string t = Printf.sprintf "%08x" ((t.b lsl 16) lor t.a)
