//! What looks like a guard, and the values of std's locks.

use super::*;

fn stack(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn guard_is_told_from_reference() {
    let lock = 0x7f00_0000_1000;
    let cases = [
        (Object::Mutex, vec![1, lock, 0xff00, 2], Some(true)),
        (Object::Mutex, vec![1, lock, 0xff01], Some(true)),
        (Object::Mutex, vec![1, lock, 0xff02, lock], Some(false)),
        (Object::Mutex, vec![lock, 7, 3, lock, 0], Some(true)),
        (Object::Mutex, vec![lock + 8, 0], None),
        (Object::RwLock, vec![lock + 16, lock, 0x55], Some(true)),
        (Object::RwLock, vec![0x55, lock, lock + 16], Some(true)),
        (Object::RwLock, vec![0x55, lock, 0x55], Some(false)),
        (Object::Once, vec![lock, 4], Some(true)),
    ];
    for (object, words, expected) in cases {
        let found = kind_of(&stack(&words), object, lock).map(|found| found == Match::Guard);
        assert_eq!(found, expected, "{object:?} {words:x?}");
    }
}

/// The values by which this file knows std's objects.
#[test]
fn objects_of_std_are_recognised() {
    let lock = std::sync::Mutex::new(0u64);
    let held = lock.lock().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| drop(lock.lock()));
        let address = std::ptr::from_ref(&lock).addr();
        while object_of(address) != Some((Object::Mutex, address)) {
            std::thread::yield_now();
        }
        drop(held);
    });
    let lock = std::sync::RwLock::new(0u64);
    let held = lock.write().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| drop(lock.read()));
        let address = std::ptr::from_ref(&lock).addr();
        while object_of(address) != Some((Object::RwLock, address)) {
            std::thread::yield_now();
        }
        drop(held);
    });
}
