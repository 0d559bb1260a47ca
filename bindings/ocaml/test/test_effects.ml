(* Tests by effects and domains, which OCaml 5 has. *)

open Support

let () =
  test "fibers read the file's blocks" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let right = ref 0 in
              Scheduler.run io (fun () ->
                  for n = 1 to 100 do
                    Scheduler.fork (fun () ->
                        for i = 1 to 5 do
                          read_and_check Scheduler.submit fd 8 ((n * 10) + i)
                        done;
                        incr right)
                  done);
              check_int "fibers" 100 !right)));

  test "a fiber that waits lets others run" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let long = long fd 3000 and early = ref false in
              Scheduler.run io (fun () ->
                  Scheduler.fork (fun () -> ignore (Scheduler.submit long.ops));
                  Scheduler.fork (fun () ->
                      read_and_check Scheduler.submit fd 1 1;
                      early := not (has_run_to_its_end long)));
              check "the other fiber ran during the wait" !early;
              check "the batch has run to its end" (has_run_to_its_end long))));

  test "an error in a fiber leaves the others running" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let right = ref 0 in
              let main () =
                Scheduler.fork (fun () -> failwith "first");
                Scheduler.fork (fun () ->
                    read_and_check Scheduler.submit fd 8 1;
                    incr right)
              in
              raises "run" (( = ) (Failure "first")) (fun () -> Scheduler.run io main);
              check_int "fibers" 1 !right)));

  test "a closed engine raises in the fiber" (fun () ->
      let io = Cringle.create () in
      Cringle.close io;
      let refused = ref false in
      Scheduler.run io (fun () ->
          match Scheduler.submit [||] with
          | _ -> ()
          | exception Cringle.Cringle_error (Unix.EBADF, _) -> refused := true);
      check "refused" !refused);

  test "domains submit at once" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io ~workers:2 (fun io ->
              let work n () =
                for i = 1 to 50 do
                  read_and_check (Cringle.submit io) fd 16 ((n * 100) + i)
                done
              in
              List.iter Domain.join (List.init 4 (fun n -> Domain.spawn (work n))))));

  test "schedulers on domains share an engine" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let work n () =
                Scheduler.run io (fun () ->
                    for i = 1 to 20 do
                      Scheduler.fork (fun () -> read_and_check Scheduler.submit fd 4 ((n * 100) + i))
                    done)
              in
              List.iter Domain.join (List.init 3 (fun n -> Domain.spawn (work n))))));

  finish ()
