(* Tests of what the collector, signals and exits do to batches under way. *)

open Support

exception Alarm

(* Calls [f], in which SIGALRM raises [Alarm] after some time. [f] does not return earlier. *)
let with_alarm f =
  let before = Sys.signal Sys.sigalrm (Sys.Signal_handle (fun _ -> raise Alarm)) in
  let timer = { Unix.it_interval = 0.; it_value = 0.002 } in
  (match ignore (Unix.setitimer Unix.ITIMER_REAL timer); f () with
  | () -> failwith "no alarm"
  | exception Alarm -> ());
  Sys.set_signal Sys.sigalrm before

(* A buffer of which [freed] reports that the collector has finalized it. *)
let watched freed len =
  let buf = Cringle.buffer len in
  Gc.finalise (fun _ -> Atomic.set freed true) buf;
  buf

let collect () =
  for _ = 1 to 3 do Gc.compact () done

let child = function
  | "exits" ->
      with_pattern (fun fd ->
          let io = Cringle.create () in
          let completions = Cringle.Completions.create io in
          for _ = 1 to 3 do Cringle.Completions.start completions (long fd 200000).ops ignore done;
          let started = Atomic.make 0 in
          for _ = 1 to 3 do
            let ops = (long fd 200000).ops in
            ignore (Thread.create (fun () -> Atomic.incr started; Cringle.submit io ops) ())
          done;
          until (fun () -> Atomic.get started = 3);
          print_string "ends";
          exit 0)
  | name -> failwith name

let () =
  if Array.length Sys.argv = 3 && Sys.argv.(1) = "child" then child Sys.argv.(2);

  test "a signal's exception ends a wait" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let long = long fd 200000 in
              with_alarm (fun () -> ignore (Cringle.submit io long.ops));
              check "the batch has run to its end" (not (has_run_to_its_end long));
              read_and_check (Cringle.submit io) fd 8 1)));

  test "after an exception the kernel writes to no buffer" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              for seed = 1 to 50 do
                let bufs = buffers 32 in
                with_alarm (fun () ->
                    while true do
                      ignore (Cringle.submit io (reads fd bufs (randoms seed 32 blocks)))
                    done);
                Array.iter (fun buf -> Bigarray.Array1.fill buf '!') bufs;
                if seed mod 10 = 0 then Gc.compact ();
                Array.iter (fun buf -> for i = 0 to block - 1 do check "late write" (buf.{i} = '!') done) bufs
              done)));

  test "a batch holds its buffers until it ends" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let freed = Atomic.make false and completions = Cringle.Completions.create io in
              (* Afterwards only the batch refers to the first buffer. *)
              let start () =
                let { ops; last } = long ~buf:(watched freed (1 lsl 20)) fd 3000 in
                Cringle.Completions.start completions ops ignore;
                Array.fill ops 0 3000 (Cringle.read fd ~offset:0 (Cringle.buffer 1));
                { ops = [||]; last }
              in
              let long = (Sys.opaque_identity start) () in
              collect ();
              let freed_early = Atomic.get freed in
              check "freed under way" (not freed_early || has_run_to_its_end long);
              Cringle.Completions.wait completions;
              check "the batch has not run to its end" (has_run_to_its_end long);
              until (fun () -> Gc.full_major (); Atomic.get freed))));

  test "a dropped queue holds the buffers of its batches" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let freed = Atomic.make false in
              let start () =
                let completions = Cringle.Completions.create io in
                let { ops; _ } = long ~buf:(watched freed (1 lsl 20)) fd 3000 in
                Cringle.Completions.start completions ops ignore
              in
              (Sys.opaque_identity start) ();
              collect ();
              check "freed under way" (not (Atomic.get freed)))));

  test "a dropped queue releases its batches when they end" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let complete = Atomic.make false and under_way = Atomic.make false in
              let start () =
                let completions = Cringle.Completions.create io in
                (* As a fiber does, the callback refers to the queue. *)
                let k _ = Cringle.Completions.poll completions in
                Cringle.Completions.start completions (reads fd [| watched complete block |] [| 1 |]) k;
                ignore (Unix.select [ Cringle.Completions.descriptor completions ] [] [] (-1.));
                Cringle.Completions.start completions (long ~buf:(watched under_way (1 lsl 20)) fd 3000).ops k
              in
              (Sys.opaque_identity start) ();
              until (fun () -> collect (); Atomic.get complete);
              until (fun () -> read_and_check (Cringle.submit io) fd 1 1; collect (); Atomic.get under_way))));

  test "buffers survive collections during the reads" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let ended = Atomic.make false in
              let collector = spawn (fun () ->
                  while not (Atomic.get ended) do Gc.compact (); Thread.yield () done) in
              let work n () =
                for i = 1 to 30 do read_and_check (Cringle.submit io) fd 16 ((n * 100) + i) done
              in
              let workers = List.init 8 (fun n -> spawn (work n)) in
              Fun.protect ~finally:(fun () -> Atomic.set ended true) (fun () -> List.iter join workers);
              join collector)));

  test "a dropped engine is closed by the collector" (fun () ->
      let before = library_threads () in
      for _ = 1 to 10 do
        with_pattern (fun fd -> read_and_check (Cringle.submit (Cringle.create ())) fd 1 1)
      done;
      until (fun () -> Gc.full_major (); library_threads () = before));

  test "dropped engines and queues are collected in time" (fun () ->
      let descriptors () = Array.length (Sys.readdir "/proc/self/fd") in
      with_pattern (fun fd ->
          Gc.full_major ();
          (* They are made without other work for the collector. *)
          let ops = reads fd (buffers 1) [| 1 |] and before = descriptors () in
          for _ = 1 to 200 do ignore (Cringle.submit (Cringle.create ()) ops) done;
          let engines = descriptors () - before in
          Cringle.with_io (fun io ->
              for _ = 1 to 800 do
                let completions = Cringle.Completions.create io in
                Cringle.Completions.start completions ops ignore;
                Cringle.Completions.wait completions
              done;
              let queues = descriptors () - before in
              check (Printf.sprintf "%d descriptors of engines, %d of queues" engines queues)
                (engines <= 200 && queues <= 400))));

  test "completions arrive without a wait at the start" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let completions = Cringle.Completions.create io and ended = ref 0 in
              for seed = 1 to 20 do
                let wanted = randoms seed 8 blocks and bufs = buffers 8 in
                Cringle.Completions.start completions (reads fd bufs wanted) (fun results ->
                    check_blocks results bufs wanted;
                    incr ended)
              done;
              while Cringle.Completions.pending completions > 0 do Cringle.Completions.wait completions done;
              Cringle.Completions.wait completions;
              check_int "ended" 20 !ended)));

  test "the descriptor is readable when a batch is complete" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let completions = Cringle.Completions.create io and ended = ref 0 in
              let descriptor = Cringle.Completions.descriptor completions in
              let readable seconds = Unix.select [ descriptor ] [] [] seconds <> ([], [], []) in
              for n = 1 to 50 do
                check "readable before the batch" (not (readable 0.));
                Cringle.Completions.start completions (reads fd (buffers 1) [| n |]) (fun _ -> incr ended);
                check "not readable" (readable (-1.));
                Cringle.Completions.poll completions;
                check_int "ended" n !ended
              done)));

  test "a callback that raises leaves the others queued" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let completions = Cringle.Completions.create io and ended = ref 0 in
              for n = 1 to 10 do
                Cringle.Completions.start completions (reads fd (buffers 1) [| n |]) (fun _ ->
                    incr ended;
                    raise Exit)
              done;
              for n = 9 downto 0 do
                raises "wait" (( = ) Exit) (fun () -> Cringle.Completions.wait completions);
                check_int "pending" n (Cringle.Completions.pending completions)
              done;
              check_int "ended" 10 !ended)));

  test "a wait ends although each callback starts a batch" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let completions = Cringle.Completions.create io and calls = ref 0 in
              let rec start buf =
                Cringle.Completions.start completions [| Cringle.read fd ~offset:0 buf |] (fun _ ->
                    incr calls;
                    (* Meanwhile the others become complete. *)
                    Unix.sleepf 0.001;
                    if !calls < 1000 then start buf)
              in
              Array.iter start (buffers 16);
              Cringle.Completions.wait completions;
              check (Printf.sprintf "%d calls in one wait" !calls) (!calls <= 16);
              while Cringle.Completions.pending completions > 0 do Cringle.Completions.wait completions done)));

  test "a program exits with batches under way" (fun () ->
      for _ = 1 to 3 do
        let out = Unix.open_process_in (Filename.quote Sys.executable_name ^ " child exits 2>&1") in
        let text = try input_line out with End_of_file -> "" in
        check (Printf.sprintf "output %S" text) (text = "ends");
        check "status" (Unix.close_process_in out = Unix.WEXITED 0)
      done);

  test "a forked child is refused" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io (fun io ->
              let submit = Cringle.submit io in
              let completions = Cringle.Completions.create io in
              read_and_check submit fd 1 1;
              Cringle.Completions.start completions (reads fd (buffers 1) [| 0 |]) ignore;
              (* The batch is complete. *)
              ignore (Unix.select [ Cringle.Completions.descriptor completions ] [] [] (-1.));
              match Unix.fork () with
              | 0 ->
                  let refused f = raises "the child" (is_error Unix.ESRCH) f in
                  (match
                     refused (fun () -> ignore (submit (reads fd (buffers 1) [| 0 |])));
                     refused (fun () -> Cringle.Completions.poll completions);
                     refused (fun () -> Cringle.Completions.wait completions)
                   with
                  | () -> Unix._exit 42
                  | exception _ -> Unix._exit 2)
              | pid ->
                  check "the child's status" (snd (Unix.waitpid [] pid) = Unix.WEXITED 42);
                  (* It is still readable. *)
                  ignore (Unix.select [ Cringle.Completions.descriptor completions ] [] [] (-1.));
                  Cringle.Completions.wait completions;
                  read_and_check submit fd 1 2)));

  finish ()
