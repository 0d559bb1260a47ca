(* What the tests share: checks, files, pipes, and numbers from a seed. *)

let failures = ref 0
let passed = ref 0

(* Runs the test if its name contains an argument of the program, or there is none. *)
let test name body =
  let contains part =
    let n = String.length part in
    List.exists (fun i -> String.sub name i n = part) (List.init (max 0 (String.length name - n + 1)) Fun.id)
  in
  let chosen = List.tl (Array.to_list Sys.argv) in
  if chosen = [] || List.exists contains chosen then
    match body () with
    | () -> incr passed; Printf.printf "ok      %s\n%!" name
    | exception error ->
        incr failures;
        Printf.printf "FAILED  %s: %s\n%!" name (Printexc.to_string error)

let finish () =
  Printf.printf "%d passed, %d failed\n%!" !passed !failures;
  exit (if !failures = 0 && !passed > 0 then 0 else 1)

let check what holds = if not holds then failwith what

let check_int what expected found =
  if expected <> found then failwith (Printf.sprintf "%s: expected %d, found %d" what expected found)

let raises what expected f =
  match f () with
  | _ -> failwith (what ^ ": nothing was raised")
  | exception error -> check (what ^ ": " ^ Printexc.to_string error) (expected error)

let is_invalid = function Invalid_argument _ -> true | _ -> false
let is_error code = function Cringle.Cringle_error (error, _) -> error = code | _ -> false

let block = 4096
let blocks = 512
let byte_of n = Char.chr ((n * 167) lxor (n lsr 8) land 255)

(* A temporary file with this content, open for reads and writes, and already unlinked. *)
let with_file text f =
  let path = Filename.temp_file "cringle" "" in
  let fd = Unix.openfile path [ Unix.O_RDWR; Unix.O_CLOEXEC ] 0 in
  Unix.unlink path;
  let written = Unix.write_substring fd text 0 (String.length text) in
  check_int "bytes written" (String.length text) written;
  Fun.protect ~finally:(fun () -> Unix.close fd) (fun () -> f fd)

(* A file in which each byte of a block is its [byte_of]. *)
let with_pattern f =
  with_file (String.concat "" (List.init blocks (fun n -> String.make block (byte_of n)))) f

(* Numbers below a bound, which follow from a seed. *)
let randoms seed count bound =
  let state = Random.State.make [| seed |] in
  Array.init count (fun _ -> Random.State.int state bound)

let buffers count = Array.init count (fun _ -> Cringle.buffer block)
let reads fd bufs wanted = Array.map2 (fun buf n -> Cringle.read fd ~offset:(n * block) buf) bufs wanted

let check_block buf n =
  for i = 0 to block - 1 do
    if buf.{i} <> byte_of n then failwith (Printf.sprintf "block %d has a wrong byte at %d" n i)
  done

let check_blocks results bufs wanted =
  Array.iteri
    (fun i result ->
      check (Printf.sprintf "result %d" i) (result = Ok block);
      check_block bufs.(i) wanted.(i))
    results;
  check_int "results" (Array.length wanted) (Array.length results)

(* Reads blocks that follow from the seed by [submit], and checks them. *)
let read_and_check submit fd count seed =
  let wanted = randoms seed count blocks and bufs = buffers count in
  check_blocks (submit (reads fd bufs wanted)) bufs wanted

(* A batch whose operations are performed one after the other and take long: each but the last one
   reads the file's first MiB into [buf], and the last one a block into [last]. *)
type long = { ops : Cringle.op array; last : Cringle.buffer }

let long ?(buf = Cringle.buffer (1 lsl 20)) fd count =
  let last = Cringle.buffer block in
  Bigarray.Array1.fill last '?';
  check "the pattern" (byte_of (blocks - 1) <> '?');
  let final = Cringle.read fd ~offset:((blocks - 1) * block) last in
  { ops = Array.init count (fun i -> if i < count - 1 then Cringle.read fd ~offset:0 buf else final); last }

(* Whether the last operation was performed. *)
let has_run_to_its_end long = long.last.{0} = byte_of (blocks - 1)

(* Threads whose exceptions are those of [join]. *)
let spawn f =
  let error = ref None in
  (Thread.create (fun () -> try f () with e -> error := Some e) (), error)

let join (thread, error) =
  Thread.join thread;
  Option.iter raise !error

(* The number of threads of this process with names of the library. *)
let library_threads () =
  let is_of_library thread =
    match open_in ("/proc/self/task/" ^ thread ^ "/comm") with
    | exception Sys_error _ -> false
    | file ->
        let name = try input_line file with End_of_file | Sys_error _ -> "" in
        close_in file;
        String.length name >= 7 && String.sub name 0 7 = "cringle"
  in
  List.length (List.filter is_of_library (Array.to_list (Sys.readdir "/proc/self/task")))

(* Returns when the condition holds. *)
let rec until condition = if not (condition ()) then begin Thread.yield (); until condition end
