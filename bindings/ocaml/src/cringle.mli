(** Batches of reads and writes, performed by Cringle's workers on their rings.

    An {!io} owns worker threads, each with an io_uring. A batch is an array of operations, which
    run concurrently and in any order. {!submit} waits for a batch and blocks only the calling
    thread: other threads and domains run. {!Completions} starts batches without a wait, for
    schedulers of effects and for event loops.

    Buffers are bigarrays, which the collector does not move. The library holds each buffer until
    the kernel has finished with it, whatever is dropped or raised. *)

type buffer = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t

(** An operation on [len] bytes of [buf] from [pos], at [offset] bytes of the file. Keep [fd] open
    until the operation has ended. *)
type op =
  | Read of { fd : Unix.file_descr; offset : int; buf : buffer; pos : int; len : int }
  | Write of { fd : Unix.file_descr; offset : int; buf : buffer; pos : int; len : int }

(** [read fd ~offset buf] reads into the whole buffer. *)
val read : Unix.file_descr -> offset:int -> buffer -> op

(** [write fd ~offset buf] writes the whole buffer. *)
val write : Unix.file_descr -> offset:int -> buffer -> op

(** The number of bytes moved, which is smaller than the length at the end of the file; or the
    error of this operation. *)
type result = (int, Unix.error) Stdlib.result

(** [buffer ~align len] returns a new buffer of [len] bytes. Its address is a multiple of [align]
    (4096 unless given), as files opened with [O_DIRECT] need. [align] is a power of two.
    @raise Invalid_argument if [len] is negative or [align] is not a power of two. *)
val buffer : ?align:int -> int -> buffer

(** An engine with workers of its own. *)
type io

(** [create ()] starts the workers.

    @param workers the number of workers, each with a ring and a thread (1).
    @param batch_limit the number of operations that one system call submits (64). A larger batch
      is split.
    @param in_flight_limit the number of operations in the kernel at once, for each worker (192).
      Further ones wait.
    @raise Invalid_argument if a number is not between 1 and 65535.
    @raise Cringle_error if a number is refused ([in_flight_limit] less than [batch_limit],
      [batch_limit] more than 32767, [workers] more than 1024), or the workers cannot start. *)
val create : ?workers:int -> ?batch_limit:int -> ?in_flight_limit:int -> unit -> io

(** Refuses further batches, waits for those under way, and ends the workers. A second call does
    nothing. *)
val close : io -> unit

(** [with_io f] is [f io] with a new [io], which is closed afterwards. *)
val with_io : ?workers:int -> ?batch_limit:int -> ?in_flight_limit:int -> (io -> 'a) -> 'a

(** How the operations are performed, and the reason: a line for a log. *)
val driver : io -> string

(** An operation of this library failed: its error, and what failed, why, and the remedy. *)
exception Cringle_error of Unix.error * string

(** [submit io ops] performs the operations and returns their results in the same order. Only the
    calling thread waits.

    A signal handler that raises ([Sys.Break] among them) ends the wait: [submit] cancels the
    operations, waits until the kernel has finished with the buffers, and raises.
    @raise Cringle_error if [io] is closed.
    @raise Invalid_argument if an operation's range is outside of its buffer. *)
val submit : io -> op array -> result array

(** Batches that are started without a wait. A value belongs to one thread at a time. It also
    belongs to the process that created it: a forked child cannot start batches, and {!wait} and
    {!poll} raise [Cringle_error] there if one is pending. *)
module Completions : sig
  type t

  (** Returns an empty queue for batches of [io]. If it is dropped, its batches are performed, and
      no [k] is called.
      @raise Cringle_error if no descriptor is left. *)
  val create : io -> t

  (** [start t ops k] submits the batch and returns. When it is complete, {!wait} or {!poll} calls
      [k] with the results. The errors are those of {!val-submit}. *)
  val start : t -> op array -> (result array -> unit) -> unit

  (** The number of batches of which [k] was not called yet. *)
  val pending : t -> int

  (** Waits until a batch is complete, then calls the [k] of each complete batch, in the order of
      their completion. Does nothing if none is pending. It calls at most as many as are pending
      at the start, so it returns although each [k] starts another batch. If [k] raises, the
      other batches stay in the queue. *)
  val wait : t -> unit

  (** Like {!wait}, but returns at once if no batch is complete. *)
  val poll : t -> unit

  (** A descriptor that is readable when a batch is complete: for [Unix.select], Lwt, Eio. It is
      valid as long as [t] is reachable. *)
  val descriptor : t -> Unix.file_descr
end
