type buffer = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t

(* The stubs read the fields by their places: keep the order. *)
type op =
  | Read of { fd : Unix.file_descr; offset : int; buf : buffer; pos : int; len : int }
  | Write of { fd : Unix.file_descr; offset : int; buf : buffer; pos : int; len : int }

type result = (int, Unix.error) Stdlib.result

exception Cringle_error of Unix.error * string

let () =
  Callback.register_exception "cringle.error" (Cringle_error (Unix.EINVAL, ""));
  Printexc.register_printer (function
    | Cringle_error (error, text) ->
        Some (Printf.sprintf "Cringle_error(%s, %S)" (Unix.error_message error) text)
    | _ -> None)

let read fd ~offset buf = Read { fd; offset; buf; pos = 0; len = Bigarray.Array1.dim buf }
let write fd ~offset buf = Write { fd; offset; buf; pos = 0; len = Bigarray.Array1.dim buf }

external address : buffer -> int = "cringle_ml_address" [@@noalloc]

let buffer ?(align = 4096) len =
  if len < 0 then invalid_arg "Cringle.buffer: the length is negative";
  if align <= 0 || align land (align - 1) <> 0 then
    invalid_arg "Cringle.buffer: the alignment is not a power of two";
  let whole = Bigarray.(Array1.create char c_layout (len + align - 1)) in
  let start = -address whole land (align - 1) in
  Bigarray.Array1.sub whole start len

(* A block of the stubs, whose finalizer closes the handle. *)
type io

external create : int -> int -> int -> io = "cringle_ml_create"
external close : io -> unit = "cringle_ml_close"
external driver : io -> string = "cringle_ml_driver"

let create ?(workers = 1) ?(batch_limit = 64) ?(in_flight_limit = 192) () =
  create workers batch_limit in_flight_limit

let with_io ?workers ?batch_limit ?in_flight_limit f =
  let io = create ?workers ?batch_limit ?in_flight_limit () in
  Fun.protect ~finally:(fun () -> close io) (fun () -> f io)

(* A started batch: an address of the stubs' memory, as an odd integer. [finish] releases it. The
   request is a root of the collector for [io] and the operations (and so the buffers). *)
type request

external start : io -> op array -> request = "cringle_ml_start"

(* Returns when the batch is complete. A signal's handler runs meanwhile, and can raise. *)
external await : request -> unit = "cringle_ml_await"

(* Cancels the batch and returns when it is complete. No handler runs meanwhile. *)
external cancel : request -> unit = "cringle_ml_cancel"
external finish : request -> result array = "cringle_ml_finish"

let submit io ops =
  let request = start io (Array.copy ops) in
  match await request with
  | () -> finish request
  | exception error ->
      cancel request;
      ignore (finish request);
      raise error

module Completions = struct
  type queue
  type pointer

  (* A request keeps its continuation's key alone: a continuation can refer to [t], which the
     collector could not find unreachable then. *)
  type t = {
    io : io;
    queue : queue;
    continuations : (int, result array -> unit) Hashtbl.t;
    mutable next_key : int;
    mutable pending : int;
  }

  external queue : unit -> queue = "cringle_ml_queue"
  external pointer : queue -> pointer = "cringle_ml_pointer" [@@noalloc]
  external drop : pointer -> unit = "cringle_ml_drop"
  external start_on : queue -> io -> op array -> int -> unit = "cringle_ml_start_on"
  external next : queue -> wait:bool -> (int * result array) option = "cringle_ml_next"

  external descriptor : queue -> Unix.file_descr = "cringle_ml_descriptor"

  let create io =
    let queue = queue () in
    let pointer = pointer queue in
    (* [finalise] would move the queue to the major heap, and delay the close of its descriptor. *)
    Gc.finalise_last (fun () -> drop pointer) queue;
    { io; queue; continuations = Hashtbl.create 8; next_key = 0; pending = 0 }

  let descriptor t = descriptor t.queue
  let pending t = t.pending

  let start t ops k =
    let key = t.next_key in
    start_on t.queue t.io (Array.copy ops) key;
    t.pending <- t.pending + 1;
    t.next_key <- key + 1;
    Hashtbl.replace t.continuations key k

  (* A continuation can start a batch that is soon complete, so the caller bounds their number. *)
  let rec take t ~wait count =
    if count > 0 then
      match next t.queue ~wait with
      | None -> ()
      | Some (key, results) ->
          t.pending <- t.pending - 1;
          (* A signal handler that raises in [start] can leave a batch without a continuation. *)
          let k = Option.value (Hashtbl.find_opt t.continuations key) ~default:ignore in
          Hashtbl.remove t.continuations key;
          k results;
          take t ~wait:false (count - 1)

  let poll t = take t ~wait:false t.pending
  let wait t = take t ~wait:true t.pending
end
