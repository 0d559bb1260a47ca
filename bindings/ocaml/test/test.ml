(* Tests of Cringle by threads. Each is named after the behaviour that it protects. *)

open Support

external address : Cringle.buffer -> int = "cringle_ml_address"

let with_pattern_io f = with_pattern (fun fd -> Cringle.with_io (fun io -> f io fd))

let () =
  test "reads return the file's blocks in order" (fun () ->
      with_pattern_io (fun io fd -> read_and_check (Cringle.submit io) fd 64 1));

  test "batches of every size are complete" (fun () ->
      with_pattern (fun fd ->
          Cringle.with_io ~workers:2 ~batch_limit:8 ~in_flight_limit:16 (fun io ->
              let sizes = [ 0; 1; 7; 8; 9; 16; 17; 100 ] in
              List.iter (fun n -> read_and_check (Cringle.submit io) fd n n) sizes)));

  test "writes are read back" (fun () ->
      with_file "" (fun fd ->
          Cringle.with_io (fun io ->
              let wanted = Array.init 100 Fun.id and bufs = buffers 100 in
              Array.iter (fun n -> Bigarray.Array1.fill bufs.(n) (byte_of n)) wanted;
              let write n = Cringle.write fd ~offset:(n * block) bufs.(n) in
              Array.iter
                (fun result -> check "written" (result = Ok block))
                (Cringle.submit io (Array.map write wanted));
              Array.iter (fun buf -> Bigarray.Array1.fill buf '?') bufs;
              check_blocks (Cringle.submit io (reads fd bufs wanted)) bufs wanted)));

  test "parts of buffers are read and written" (fun () ->
      with_file "0123456789" (fun fd ->
          Cringle.with_io (fun io ->
              let buf = Cringle.buffer 8 in
              Bigarray.Array1.fill buf '-';
              let read = Cringle.Read { fd; offset = 4; buf; pos = 2; len = 3 } in
              check "read" (Cringle.submit io [| read |] = [| Ok 3 |]);
              check "the buffer" (String.init 8 (fun i -> buf.{i}) = "--456---");
              let write = Cringle.Write { fd; offset = 0; buf; pos = 4; len = 2 } in
              check "written" (Cringle.submit io [| write |] = [| Ok 2 |]);
              check "read again" (Cringle.submit io [| Cringle.read fd ~offset:0 buf |] = [| Ok 8 |]);
              check "the file" (String.init 8 (fun i -> buf.{i}) = "6-234567"))));

  test "a read at the end of the file is short" (fun () ->
      with_file (String.make 5000 'x') (fun fd ->
          Cringle.with_io (fun io ->
              let results = Cringle.submit io (reads fd (buffers 3) [| 0; 1; 2 |]) in
              check "results" (results = [| Ok 4096; Ok 904; Ok 0 |]))));

  test "a failed operation fails alone" (fun () ->
      with_pattern_io (fun io fd ->
          let unwritable = Unix.openfile "/dev/null" [ Unix.O_RDONLY ] 0 in
          let bufs = buffers 3 in
          let ops =
            [| Cringle.read fd ~offset:0 bufs.(0); Cringle.write unwritable ~offset:0 bufs.(1);
               Cringle.read fd ~offset:(-1) bufs.(2) |]
          in
          let results = Cringle.submit io ops in
          Unix.close unwritable;
          check "results" (results = [| Ok block; Error Unix.EBADF; Error Unix.EINVAL |])));

  test "a range outside of the buffer is refused" (fun () ->
      with_pattern_io (fun io fd ->
          let buf = Cringle.buffer 100 in
          let refused (pos, len) =
            let ops = [| Cringle.Read { fd; offset = 0; buf; pos; len } |] in
            raises (Printf.sprintf "%d, %d" pos len) is_invalid (fun () -> Cringle.submit io ops)
          in
          List.iter refused
            [ (-1, 1); (0, 101); (100, 1); (101, 0); (50, 51); (0, -1); (min_int, 1); (max_int, max_int);
              (1, max_int) ];
          let all = [| Cringle.Read { fd; offset = 0; buf; pos = 0; len = 100 };
                       Cringle.Read { fd; offset = 0; buf; pos = 100; len = 0 } |] in
          check "results" (Cringle.submit io all = [| Ok 100; Ok 0 |])));

  test "buffers are aligned" (fun () ->
      raises "a negative length" is_invalid (fun () -> Cringle.buffer (-1));
      raises "an alignment of 3" is_invalid (fun () -> Cringle.buffer ~align:3 1);
      check_int "length" 5 (Bigarray.Array1.dim (Cringle.buffer 5));
      for len = 0 to 20 do
        check_int "address" 0 (address (Cringle.buffer len) land 4095);
        check_int "address" 0 (address (Cringle.buffer ~align:512 len) land 511)
      done);

  test "limits out of range are refused" (fun () ->
      raises "no worker" is_invalid (fun () -> Cringle.create ~workers:0 ());
      raises "a negative limit" is_invalid (fun () -> Cringle.create ~batch_limit:(-1) ());
      raises "more in a batch than in flight" (is_error Unix.EINVAL) (fun () ->
          Cringle.create ~batch_limit:64 ~in_flight_limit:32 ()));

  test "the driver is named with a reason" (fun () ->
      let text = Cringle.with_io Cringle.driver in
      check text (String.length text > 10 && (text.[0] = 'i' || text.[0] = 't')));

  test "a closed engine refuses batches" (fun () ->
      with_pattern (fun fd ->
          let io = Cringle.create () in
          Cringle.close io;
          Cringle.close io;
          let ops = reads fd (buffers 1) [| 0 |] in
          raises "submit" (is_error Unix.EBADF) (fun () -> Cringle.submit io ops);
          let completions = Cringle.Completions.create io in
          raises "start" (is_error Unix.EBADF) (fun () -> Cringle.Completions.start completions ops ignore);
          check_int "pending" 0 (Cringle.Completions.pending completions)));

  test "close waits for batches under way" (fun () ->
      with_pattern (fun fd ->
          let io = Cringle.create () in
          let completions = Cringle.Completions.create io in
          let long = long fd 1000 and ended = ref 0 in
          Cringle.Completions.start completions long.ops (fun results -> ended := Array.length results);
          Cringle.close io;
          check "the batch has run to its end" (has_run_to_its_end long);
          Cringle.Completions.wait completions;
          check_int "results" 1000 !ended));

  test "a wait lets other threads run" (fun () ->
      with_pattern_io (fun io fd ->
          let long = long fd 5000 and started = Atomic.make false in
          let waiter = spawn (fun () ->
              Atomic.set started true;
              check_int "results" 5000 (Array.length (Cringle.submit io long.ops))) in
          until (fun () -> Atomic.get started);
          check "the batch has run to its end" (not (has_run_to_its_end long));
          join waiter;
          check "the batch has not run to its end" (has_run_to_its_end long)));

  test "many threads get their own blocks" (fun () ->
      with_pattern_io (fun io fd ->
          let work n () =
            for i = 1 to 10 do read_and_check (Cringle.submit io) fd 8 ((n * 100) + i) done
          in
          List.iter join (List.init 50 (fun n -> spawn (work n)))));

  finish ()
