//! What the normal case costs in allocations: nothing, once everything has warmed up.
//!
//! The memory of a request becomes that of the prepare, the log and the pipeline are rings, and
//! acknowledgement frames are used again. The owner here keeps the memory of prepares that every
//! replica has evicted for the next requests, and so all of a group of three allocates nothing:
//! building requests, admitting, carrying, decoding, acknowledging, committing, evicting.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;

use biplane_vsr::{Admission, Boot, Input, Limits, Output, Replica, WakeWheel};
use biplane_wire::{FrameBuffer, Message, PrepareHeader, ReplicaFrame, ReplicaId, decode_replica};
use support::node::TestPlane;
use support::{Kind, config, frames};

thread_local! {
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Counts what this thread allocates between [`counted`] and its end.
struct Counting;

fn note() {
    let _ = COUNT.try_with(|count| count.set(count.get().map(|sum| sum + 1)));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of `work` on this thread.
fn counted(work: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    work();
    COUNT.take().unwrap_or_default()
}

struct Group {
    replicas: Vec<Replica>,
    plane: TestPlane,
    frames: VecDeque<(ReplicaId, ReplicaFrame)>,
    out: Vec<Output>,
    /// Prepares of the past, oldest first. Nobody else holds the first ones any more.
    past: VecDeque<Message>,
    number: u64,
}

impl Group {
    fn new() -> Self {
        let open = |replica| {
            let mut config = config(Kind::Partition, replica, 3);
            config.group = support::GROUP;
            config.limits = Limits::default();
            Replica::open(config, Boot::fresh()).expect("valid")
        };
        let mut plane = TestPlane::new(Kind::Partition);
        plane.counts = false;
        Self {
            replicas: (0..3).map(open).collect(),
            plane,
            frames: VecDeque::with_capacity(1024),
            out: Vec::with_capacity(64),
            past: VecDeque::with_capacity(1024),
            number: 0,
        }
    }

    /// A request in memory that was used before, if there is any.
    fn request(&mut self) -> FrameBuffer {
        self.number += 1;
        let header = frames::request_header(9, self.number, 0);
        match self.past.pop_front().map(Message::try_unique) {
            Some(Ok(mut used)) => {
                used.set_header(&header);
                return used;
            }
            Some(Err(held)) => self.past.push_front(held),
            None => {}
        }
        FrameBuffer::from_parts(&header, &[])
    }

    /// Lets `count` requests commit.
    fn commit(&mut self, count: u64) {
        for _ in 0..count {
            let request = self.request();
            let (number, plane, out) = (self.number, &mut self.plane, &mut self.out);
            let admission = self.replicas[0].admit(request, number, 1, plane, out);
            let Admission::Prepared { op } = admission else {
                panic!("there is room: {admission:?}");
            };
            let prepare = self.replicas[0].log().get(op).expect("it was prepared");
            self.past.push_back(prepare.clone());
            self.carry();
        }
        while let Some((to, frame)) = self.frames.pop_front() {
            let replica = &mut self.replicas[usize::from(to.0)];
            replica.step(Input::Frame(frame), &mut self.plane, &mut self.out);
            while let Some(prepare) = replica.next_committed() {
                let op = prepare.header::<PrepareHeader>().op();
                replica.applied(op);
                replica.log_mut().evict_through(op);
            }
            replica.promote(&mut self.plane, &mut self.out);
            self.carry();
        }
    }

    fn carry(&mut self) {
        for output in self.out.drain(..) {
            if let Output::Send { to, message } = output {
                self.frames.push_back((to, decode(message)));
            }
        }
    }
}

fn decode(message: Message) -> ReplicaFrame {
    decode_replica(message).expect("own frames")
}

#[test]
fn ops_of_a_group_of_three_cost_no_allocation() {
    let mut group = Group::new();
    for _ in 0..20 {
        group.commit(32);
    }
    let total = counted(|| (0..100).for_each(|_| group.commit(32)));
    assert_eq!(total, 0, "allocations of 3200 ops on three replicas");
    let status = group.replicas[0].status();
    assert_eq!(status.commit_min.0, 32 * 120);
}

/// The counter counts: an owner that keeps no memory pays for each request, and nothing more.
#[test]
fn a_request_in_new_memory_costs_its_frame() {
    let mut group = Group::new();
    for _ in 0..20 {
        group.commit(32);
    }
    let total = counted(|| {
        for _ in 0..100 {
            group.past.clear();
            group.commit(32);
        }
    });
    assert_eq!(
        total,
        3200 * 2,
        "the blocks of a frame, and its reference count"
    );
}

#[test]
fn an_idle_tick_costs_none() {
    let mut group = Group::new();
    group.commit(10);
    let mut wheel = WakeWheel::default();
    (0..1000_u64).for_each(|key| wheel.set(key, 5000 + key));
    let total = counted(|| {
        for tick in 1..5000 {
            assert!(wheel.take(tick).is_empty());
        }
    });
    assert_eq!(total, 0, "of the wheel");
    let backup = &mut group.replicas[1];
    let ticks = backup.ticks_to_wake() - 1;
    let total = counted(|| {
        for _ in 0..ticks {
            let tick = Input::Tick { wall_micros: 1 };
            backup.step(tick, &mut group.plane, &mut group.out);
        }
    });
    assert_eq!(total, 0, "of the core");
    assert!(group.out.is_empty());
}
