//! Invariants over thousands of seeded steps, against a model that is obviously right.

use std::collections::{BTreeMap, BTreeSet};

use base::philox::Stream as Random;
use base::{ExpertId, LayerId, SlotId};

use crate::{Directory, Key, Load, Stream, loads_on_demand};

fn key(layer: usize, expert: u32) -> Key {
    Key { layer: LayerId(layer as u32), expert: ExpertId(expert) }
}

/// Slots as a map, and the experts in the order of use (last = most recent).
#[derive(Default)]
struct Naive {
    memory: BTreeMap<SlotId, Key>,
    used: Vec<Key>,
}

impl Naive {
    fn apply(&mut self, load: &Load) {
        assert_eq!(self.memory.get(&load.slot).copied(), load.evicted, "what the slot held");
        if let Some(old) = load.evicted {
            self.used.retain(|k| *k != old);
        }
        assert!(!self.memory.values().any(|k| *k == load.key), "{:?} is loaded twice", load.key);
        self.memory.insert(load.slot, load.key);
    }

    fn touch(&mut self, key: Key) {
        self.used.retain(|k| *k != key);
        self.used.push(key);
    }
}

#[test]
fn thousands_of_steps_keep_the_invariants_and_evict_the_least_recent() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let experts: Vec<usize> = (0..1 + random.below(5)).map(|_| random.below(40) as usize).collect();
        let all: usize = experts.iter().sum();
        let k = 1 + random.below(6) as usize;
        let slots = k + random.below(all as u32 + 4) as usize;
        let mut directory = Directory::new(&experts, slots);
        let (mut naive, mut loads) = (Naive::default(), Vec::new());
        for _ in 0..2000 {
            let layer = random.below(experts.len() as u32) as usize;
            if experts[layer] == 0 {
                continue;
            }
            let ids: Vec<u32> = (0..k).map(|_| random.below(experts[layer] as u32)).collect();
            let needed: BTreeSet<Key> = ids.iter().map(|id| key(layer, *id)).collect();
            // In the order of use: those that are there, then those that are loaded.
            let mut order: Vec<Key> = ids.iter().map(|id| key(layer, *id)).collect();
            let mut seen = BTreeSet::new();
            order.retain(|k| directory.slot(*k).is_some() && seen.insert(*k));
            let resident = order.len();
            loads.clear();
            let resolved = directory.resolve(LayerId(layer as u32), &ids, &mut loads);
            assert_eq!((resolved.hits, resolved.misses), (resident, needed.len() - resident));
            assert_eq!(loads.len(), resolved.misses);
            for load in &loads {
                if let Some(old) = load.evicted {
                    assert!(!needed.contains(&old), "an expert of the step itself was evicted");
                    let older = naive.used.iter().position(|k| *k == old).unwrap();
                    let spared = naive.used[..older].iter().filter(|k| !needed.contains(k)).count();
                    assert_eq!(spared, 0, "{old:?} was not the least recently used");
                    assert_eq!(naive.memory.len(), slots, "evicted while slots were empty");
                }
                naive.apply(load);
            }
            order.extend(loads.iter().map(|l| l.key));
            order.iter().for_each(|k| naive.touch(*k));
            for k in &needed {
                let slot = directory.slot(*k).expect("needed experts are in slots");
                assert_eq!(naive.memory[&slot], *k);
                assert_eq!(directory.owner(slot), Some(*k));
            }
            directory.check();
        }
        assert!(directory.resident() <= slots.min(all));
    }
}

/// Decode steps and streaming passes in any order, passes also broken off: memory as the naive model has it
/// is memory as the directory says.
#[test]
fn passes_and_steps_in_any_order_agree_about_memory() {
    for seed in 100..130 {
        let mut random = Random::new(seed);
        let layers = 2 + random.below(4) as usize;
        let count = 4 + random.below(12) as usize;
        let experts = vec![count; layers];
        let all = layers * count;
        let stage = count;
        let slots = (2 * stage + random.below(all as u32) as usize).min(all);
        let stage = if slots == all { 0 } else { stage };
        let mut directory = Directory::new(&experts, slots);
        let mut memory: BTreeMap<SlotId, Key> = BTreeMap::new();
        let mut loads = Vec::new();
        for _ in 0..200 {
            loads.clear();
            if random.below(3) > 0 {
                let layer = random.below(layers as u32);
                let ids: Vec<u32> = (0..3).map(|_| random.below(count as u32)).collect();
                directory.resolve(LayerId(layer), &ids, &mut loads);
                memory.extend(loads.iter().map(|l| (l.slot, l.key)));
            } else {
                let mut evicted = Vec::new();
                let mut stream = Stream::begin(&mut directory, stage, &mut evicted);
                evicted.iter().for_each(|(key, slot)| assert_eq!(memory.remove(slot), Some(*key)));
                directory.check();
                let broken_off = random.below(4) == 0;
                for layer in 0..layers {
                    if broken_off && layer == layers / 2 {
                        break;
                    }
                    loads.clear();
                    let layer = LayerId(layer as u32);
                    let residents = stream.group(&mut directory, &[layer], layer.index() % 2, &mut loads);
                    assert_eq!(residents + loads.len(), count);
                    memory.extend(loads.iter().map(|l| (l.slot, l.key)));
                    for expert in 0..count as u32 {
                        let key = Key { layer, expert: ExpertId(expert) };
                        let staged = loads.iter().find(|l| l.key == key).map(|l| l.slot);
                        let slot = directory.slot(key).or(staged).expect("every expert has a place");
                        assert_eq!(memory.get(&slot), Some(&key));
                        let kept = directory.slot(key) == Some(slot);
                        assert_ne!(kept, stream.is_staging(slot), "staged experts are not in the directory");
                    }
                }
                stream.end(&mut directory, |_| true);
            }
            directory.check();
            for slot in (0..slots as u32).map(SlotId) {
                if let Some(key) = directory.owner(slot) {
                    assert_eq!(memory.get(&slot), Some(&key), "{slot}");
                }
            }
        }
    }
}

#[test]
fn a_pass_settles_an_equal_share_of_each_layer_and_copies_no_resident_again() {
    let (layers, count, stage) = (4usize, 8usize, 8usize);
    let slots = 2 * stage + 10;
    let mut directory = Directory::new(&[count; 4], slots);
    let pass = |directory: &mut Directory| {
        let mut stream = Stream::begin(directory, stage, &mut Vec::new());
        let mut copies = Vec::new();
        for layer in 0..layers {
            let mut loads = Vec::new();
            stream.group(directory, &[LayerId(layer as u32)], layer % 2, &mut loads);
            copies.push(loads.len());
        }
        let settled: Vec<_> = (0..layers).map(|l| directory.resident_in(LayerId(l as u32))).collect();
        stream.end(directory, |_| true);
        (copies, settled)
    };
    let (copies, settled) = pass(&mut directory);
    assert_eq!(copies, [count; 4]);
    assert_eq!(settled, [2; 4]);
    // The last two groups stay where they were staged.
    assert_eq!([2, 3].map(|l| directory.resident_in(LayerId(l))), [count; 2]);
    let (copies, settled) = pass(&mut directory);
    assert_eq!(copies, [6; 4]);
    assert_eq!(settled, [2; 4]);
}

#[test]
fn with_a_slot_for_each_expert_nothing_is_copied_twice() {
    let mut directory = Directory::new(&[5, 0, 5], 10);
    for expected in [5, 0] {
        let mut stream = Stream::begin(&mut directory, 0, &mut Vec::new());
        for layer in [0, 2] {
            let mut loads = Vec::new();
            stream.group(&mut directory, &[LayerId(layer)], 0, &mut loads);
            assert_eq!(loads.len(), expected);
        }
        stream.end(&mut directory, |_| true);
        directory.check();
    }
    assert_eq!(directory.resident(), 10);
}

#[test]
#[should_panic(expected = "more experts than slots")]
fn a_step_larger_than_the_slots_is_our_mistake() {
    let mut directory = Directory::new(&[8], 2);
    directory.resolve(LayerId(0), &[0, 1, 2], &mut Vec::new());
}

#[test]
fn short_chunks_load_on_demand() {
    assert!(loads_on_demand(1, 8, 128, 8));
    assert!(loads_on_demand(11, 8, 128, 128));
    assert!(!loads_on_demand(12, 8, 128, 128), "more than half of the experts are expected");
    assert!(loads_on_demand(35, 10, 512, 512));
    assert!(!loads_on_demand(2, 8, 128, 15), "two rows may need sixteen slots");
    assert!(!loads_on_demand(usize::MAX, 8, 128, 128));
}
