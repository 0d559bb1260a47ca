use cringle::{Builder, fiber};
use std::time::Duration;
fn a_short_run(round: usize) {
    let run = Builder::new().workers(1 + round % 3).run(|| {
        let file = cringle::fs::File::open("/proc/self/exe").unwrap();
        let length = fiber::spawn(move || file.metadata().unwrap().len()).join().unwrap();
        let cores = fiber::unblock(|| std::thread::available_parallelism().unwrap().get());
        for _ in 0..20 {
            fiber::spawn_local(fiber::park);
            fiber::spawn(|| fiber::sleep(Duration::from_secs(3600)));
        }
        length as usize + cores
    });
    assert!(run.unwrap() > 0);
}
#[test]
fn maps() {
    for n in 0..3000 { a_short_run(n); if [10, 30, 100, 300, 1000, 2999].contains(&n) { std::fs::write(format!("/tmp/maps{n}"), std::fs::read_to_string("/proc/self/maps").unwrap()).unwrap(); } }
}
