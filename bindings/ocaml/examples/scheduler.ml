(* A scheduler of fibers on one thread. A fiber that submits a batch is suspended until it is
   complete; the others run. *)

open Effect
open Effect.Deep

type _ Effect.t +=
  | Submit : Cringle.op array -> Cringle.result array Effect.t
  | Fork : (unit -> unit) -> unit Effect.t

let submit ops = perform (Submit ops)
let fork f = perform (Fork f)

(* Runs [main] and all fibers, and then raises the first error of one. *)
let run io main =
  let completions = Cringle.Completions.create io in
  let runnable = Queue.create () and failed = ref None in
  let rec fiber f =
    match_with f ()
      { retc = Fun.id;
        exnc = (fun error -> if Option.is_none !failed then failed := Some error);
        effc =
          (fun (type a) (request : a Effect.t) ->
            match request with
            | Submit ops ->
                Some
                  (fun (k : (a, unit) continuation) ->
                    match Cringle.Completions.start completions ops (continue k) with
                    | () -> ()
                    | exception error -> discontinue k error)
            | Fork f ->
                Some
                  (fun (k : (a, unit) continuation) ->
                    Queue.push (fun () -> fiber f) runnable;
                    continue k ())
            | _ -> None) }
  in
  let rec loop () =
    match Queue.take_opt runnable with
    | Some resume -> resume (); loop ()
    | None when Cringle.Completions.pending completions > 0 ->
        Cringle.Completions.wait completions; loop ()
    | None -> Option.iter raise !failed
  in
  fiber main; loop ()
