(* The Adler-32 checksums of files. Four threads each keep 16 reads of 64 KiB under way: a thread that
   waits for its batch lets the others compute. *)

let () =
  Cringle.with_io (fun io ->
      for i = 1 to Array.length Sys.argv - 1 do
        let parts = Parts.of_file Sys.argv.(i) in
        let start _ = Thread.create (Parts.worker parts ~submit:(Cringle.submit io)) () in
        List.iter Thread.join (List.init 4 start);
        Parts.print parts Sys.argv.(i)
      done)
