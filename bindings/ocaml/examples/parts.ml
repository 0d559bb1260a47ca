(* The parts of a file, which workers take from a common counter. *)

let part_bytes = 65536
let batch = 16 (* parts of a batch *)

type t = { fd : Unix.file_descr; sums : Adler.t array; next : int Atomic.t }

let of_file path =
  let fd = Unix.openfile path [ Unix.O_RDONLY; Unix.O_CLOEXEC ] 0 in
  let bytes = (Unix.LargeFile.fstat fd).Unix.LargeFile.st_size |> Int64.to_int in
  { fd; sums = Array.make ((bytes + part_bytes - 1) / part_bytes) Adler.empty; next = Atomic.make 0 }

(* Takes batches of parts until none is left, and stores the checksum of each part. *)
let rec sum t buffers ~submit =
  let first = Atomic.fetch_and_add t.next batch in
  let count = min batch (Array.length t.sums - first) in
  if count > 0 then begin
    let read i = Cringle.read t.fd ~offset:((first + i) * part_bytes) buffers.(i) in
    let results = submit (Array.init count read) in
    Array.iteri
      (fun i -> function
        | Ok bytes -> t.sums.(first + i) <- Adler.of_buffer buffers.(i) bytes
        | Error error -> raise (Unix.Unix_error (error, "read", "")))
      results;
    sum t buffers ~submit
  end

let worker t ~submit () = sum t (Array.init batch (fun _ -> Cringle.buffer part_bytes)) ~submit

let print t path =
  Unix.close t.fd;
  Printf.printf "%s  %s\n" (Adler.to_string (Array.fold_left Adler.append Adler.empty t.sums)) path
