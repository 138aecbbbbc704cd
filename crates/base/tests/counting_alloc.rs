//! The counting allocator, in a binary of its own because there is one allocator per process.

use std::hint::black_box;

use base::counting_alloc::{self, CountingAlloc};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

/// One test: another one's allocations on its own thread would be in the total.
#[test]
fn allocations_are_counted_by_thread_and_in_all_and_the_first_is_remembered() {
    let counts = || (counting_alloc::of_this_thread(), counting_alloc::total());
    let (thread, total) = counts();
    let mut list = black_box(Vec::<u64>::with_capacity(4));
    assert_eq!(counts(), (thread + 1, total + 1));
    list.extend([1, 2, 3, 4]);
    assert_eq!(counts(), (thread + 1, total + 1), "room was there");
    list.push(5);
    assert_eq!(counts(), (thread + 2, total + 2), "growing counts");
    drop(list);
    drop(black_box(vec![0u8; 100]));
    assert_eq!(counts(), (thread + 3, total + 3), "freeing does not, zeroed memory does");

    let (thread, total) = counts();
    let elsewhere = std::thread::spawn(|| {
        let before = counting_alloc::of_this_thread();
        (0..10).for_each(|i| drop(black_box(Box::new(i))));
        counting_alloc::of_this_thread() - before
    });
    assert_eq!(elsewhere.join().unwrap(), 10);
    assert!(counting_alloc::total() >= total + 10);
    assert!(counting_alloc::of_this_thread() - thread < 10);

    counting_alloc::watch();
    assert_eq!(counting_alloc::unwatch(), None);
    let (thread, total) = counts();
    counting_alloc::watch();
    allocate_here();
    assert_eq!(counts(), (thread + 2, total + 2), "describing is not counted");
    let first = counting_alloc::unwatch().unwrap();
    assert!(first.starts_with("77 bytes") && first.contains("allocate_here"), "{first}");
    assert_eq!(counting_alloc::unwatch(), None);
}

#[inline(never)]
fn allocate_here() {
    drop(black_box(vec![1u8; 77]));
    drop(black_box(vec![1u8; 78]));
}
