(* The Adler-32 checksums of files, as checksum_threads, by four fibers on one thread. *)

let () =
  Cringle.with_io (fun io ->
      for i = 1 to Array.length Sys.argv - 1 do
        let parts = Parts.of_file Sys.argv.(i) in
        Scheduler.run io (fun () ->
            for _ = 1 to 4 do
              Scheduler.fork (Parts.worker parts ~submit:Scheduler.submit)
            done);
        Parts.print parts Sys.argv.(i)
      done)
