use super::*;
use crate::testing::TestMachine;

fn dcm(blocks: BlockSize, pages: u32, local: u32) -> (Dcm, TestMachine) {
    let papers = Config { return_share: 0.0, ..Config::default() };
    let config = Config { blocks, random_promotion: 0.0, inactive_share: 0.25, ..papers };
    let mut policy = Dcm::build(config, 1, &Knowledge::default());
    let mut machine = TestMachine::new(pages, local);
    policy.start(&mut machine);
    machine.touch(&mut policy, 0..pages);
    machine.calls.clear();
    (policy, machine)
}

fn run_all(policy: &mut Dcm, machine: &mut TestMachine, pages: impl IntoIterator<Item = u32>) -> usize {
    pages.into_iter().filter(|&page| machine.run(policy, page)).count()
}

#[test]
fn local_memory_is_never_exceeded_and_every_fault_is_served() {
    let sizes = [BlockSize::Elastic, BlockSize::Pages1, BlockSize::Pages4, BlockSize::Pages16];
    for (blocks, local) in sizes.into_iter().flat_map(|blocks| [4, 25, 64].map(|local| (blocks, local))) {
        let (mut policy, mut machine) = dcm(blocks, 256, local);
        let mut random = 1_u64;
        for _ in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (random >> 33) as u32 % 256;
            machine.run(&mut policy, page);
            assert_eq!(machine.tier_of(page), Some(Tier::Local), "{blocks:?}");
            assert!(machine.pages_in(Tier::Local).len() <= local as usize);
        }
    }
}

/// Section 3.4: buffers that could hold all of local memory, and inactive blocks of threads that rest.
#[test]
fn threads_find_what_waits_with_others() {
    for (blocks, local) in [(BlockSize::Elastic, 64), (BlockSize::Pages1, 12), (BlockSize::Pages4, 25)] {
        let queues = Config { inactive_share: 0.25, ..Config::default() };
        let config = Config { blocks, thread_buffer_pages: 16, thread_inactive: true, ..queues };
        let mut policy = Dcm::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(256, local);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..256);
        let mut random = 1_u64;
        let mut buffered = 0;
        for turn in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (page, task) = ((random >> 33) as u32 % 256, (random >> 50) as u32 % 4);
            // One thread works while the others rest, then all do.
            let task = if turn / 500 % 2 == 0 { turn / 1000 } else { task };
            machine.run_as(&mut policy, page, task);
            assert_eq!(machine.tier_of(page), Some(Tier::Local), "{blocks:?}");
            assert!(machine.pages_in(Tier::Local).len() <= local as usize);
            buffered = buffered.max(policy.threads.iter().map(ThreadQueues::buffered).sum());
        }
        assert!(policy.threads.len() == 4 && buffered > 2, "{buffered} at most were in buffers");
    }
}

#[test]
fn static_blocks_come_whole() {
    let (mut policy, mut machine) = dcm(BlockSize::Pages4, 64, 16);
    let faults = run_all(&mut policy, &mut machine, 0..32);
    assert_eq!(faults, 8);
    assert!(machine.calls.iter().all(|&pages| pages == 4), "{:?}", machine.calls);
}

#[test]
fn elastic_blocks_grow_by_one_step_a_round_of_a_scan() {
    let (mut policy, mut machine) = dcm(BlockSize::Elastic, 256, 64);
    let faults: Vec<_> = (0..5).map(|_| run_all(&mut policy, &mut machine, 0..256)).collect();
    assert!(faults.windows(2).all(|pair| pair[1] <= pair[0]), "{faults:?}");
    assert!(faults[4] <= 256 / 16 + 4, "{faults:?}");
}

#[test]
fn blocks_of_which_little_is_referenced_are_reduced() {
    let (mut policy, mut machine) = dcm(BlockSize::Elastic, 256, 64);
    for _ in 0..5 {
        run_all(&mut policy, &mut machine, 0..256);
    }
    assert_eq!(policy.blocks.order(0), MAX_ORDER);
    for _ in 0..3 {
        run_all(&mut policy, &mut machine, (0..256).step_by(16));
    }
    assert_eq!(policy.blocks.order(0), 0);
}

#[test]
fn an_inactive_block_that_is_accessed_becomes_proactive() {
    let (mut policy, mut machine) = dcm(BlockSize::Pages1, 64, 16);
    let inactive = (0..64).find(|&page| policy.pages[page as usize].queue == Some(Queue::Inactive)).unwrap();
    assert!(machine.run(&mut policy, inactive));
    assert_eq!(policy.pages[inactive as usize].queue, Some(Queue::Proactive));
    assert!(machine.calls.is_empty(), "nothing is fetched");
}

/// Section 3.3 and Fig. 5: the fetch begins first, into a frame that the fault before left free; victims
/// follow.
#[test]
fn the_fetch_begins_before_any_victim_is_chosen() {
    let (mut policy, mut machine) = dcm(BlockSize::Pages1, 64, 16);
    let far = machine.pages_in(Tier::Far);
    machine.run(&mut policy, far[0]);
    machine.moves.clear();
    machine.run(&mut policy, far[1]);
    machine.run(&mut policy, far[2]);
    let to: Vec<_> = machine.moves.iter().map(|&(_, tier)| tier).collect();
    assert_eq!(to, [Tier::Local, Tier::Far, Tier::Local, Tier::Far]);
}

/// Algorithm 1, lines 8 to 11: a stretched block has its buddy's state, and an active one is the last to
/// go.
#[test]
fn a_stretched_block_takes_its_buddys_state_and_place() {
    for queue in [Queue::Active, Queue::Proactive] {
        let (mut policy, mut machine) = dcm(BlockSize::Elastic, 64, 16);
        policy.blocks = Blocks::new(64, 0, MAX_ORDER);
        let buddy = machine.pages_in(Tier::Far).into_iter().find(|page| page.is_multiple_of(2)).unwrap();
        policy.config.inactive_share = 0.0;
        machine.run(&mut policy, buddy);
        policy.enqueue(buddy, queue);
        machine.run(&mut policy, buddy + 1);
        assert_eq!(policy.block(buddy), buddy..buddy + 2);
        assert_eq!(policy.pages[buddy as usize].queue, Some(queue));
        assert_eq!(policy.pages[buddy as usize + 1].queue, None, "the head stands for both");
    }
}

#[test]
fn one_newcomer_in_ten_is_proactive_at_once() {
    let config = Config { blocks: BlockSize::Pages1, ..Config::default() };
    assert_eq!(config.random_promotion, 0.1);
    let mut policy = Dcm::build(config, 1, &Knowledge::default());
    let mut machine = TestMachine::new(4096, 4096);
    policy.start(&mut machine);
    machine.touch(&mut policy, 0..4000);
    let proactive = policy.pages.iter().filter(|page| page.queue == Some(Queue::Proactive)).count();
    assert!((320..480).contains(&proactive), "{proactive}");
}

/// Where nearly all blocks are proactive the one that has just come is the oldest active one.
#[test]
fn a_block_that_has_just_come_stays_until_it_is_used() {
    let (mut policy, mut machine) = dcm(BlockSize::Pages4, 64, 17);
    policy.config.inactive_share = 0.0;
    policy.queues = Replacement::new(Dcm::shares(policy.config), 17, 1);
    machine.touch(&mut policy, 0..64);
    for page in (0..64).step_by(4) {
        for mapped in machine.pages_in(Tier::Local).into_iter().filter(|page| page % 4 == 0) {
            policy.enqueue(mapped, Queue::Proactive);
        }
        machine.run(&mut policy, page);
        assert_eq!(machine.tier_of(page), Some(Tier::Local), "{page}");
        assert!(!machine.run(&mut policy, page), "{page} can be used at once");
    }
}

#[test]
fn frames_are_free_before_the_next_fault() {
    let (mut policy, mut machine) = dcm(BlockSize::Pages4, 64, 16);
    run_all(&mut policy, &mut machine, [0, 9, 33, 61]);
    assert!(machine.free_pages(Tier::Local) >= 4);
}
