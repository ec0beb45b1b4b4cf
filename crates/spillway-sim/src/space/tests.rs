//! What userfaultfd does to a page table, case by case.

use super::*;
use spillway_core::page::PAGE_SIZE;

const FULL: [u8; PAGE_SIZE] = [7; PAGE_SIZE];

fn space(pages: Pages) -> (Space, Physical) {
    let (mut space, mut physical) = (Space::default(), Physical::default());
    space.map(&mut physical, pages.clone(), Protection::Write, 0);
    space.register(pages, Faults::Handlers).unwrap();
    (space, physical)
}

#[test]
fn a_registered_page_is_asked_for_and_another_is_zero() {
    let (mut space, mut physical) = space(10..20);
    assert_eq!(space.access(&mut physical, 10, false), Access::Missing(Faults::Handlers));
    assert_eq!(space.access(&mut physical, 20, false), Access::Segv);
    space.unregister(10..12).unwrap();
    assert_eq!(space.access(&mut physical, 10, false), Access::Done);
    assert_eq!(space.entry(10), Entry::Zero { is_protected: false });
    assert_eq!(space.access(&mut physical, 10, true), Access::Done);
    assert_eq!(physical.page(space.frame(10).unwrap())[0], 0);
    assert_eq!(space.one_mapping(10..13), None);
}

#[test]
fn copies_go_where_nothing_is_in_one_registered_mapping() {
    let (mut space, mut physical) = space(10..20);
    assert_eq!(space.may_fill(10..20, Faults::Handlers), Ok(()));
    assert_eq!(space.may_fill(10..20, Faults::Signals), Err(Errno::NOENT));
    assert_eq!(space.may_fill(18..21, Faults::Handlers), Err(Errno::NOENT));
    space.change(15..20, |attributes| attributes.protection = Protection::Read).unwrap();
    assert_eq!(space.may_fill(10..20, Faults::Handlers), Err(Errno::NOENT));
    space.fill(&mut physical, 10, &FULL, false).unwrap();
    assert_eq!(space.fill(&mut physical, 10, &FULL, false), Err(Errno::EXIST));
    assert_eq!(space.fill_zero(10), Err(Errno::EXIST));
    space.poison(11).unwrap();
    assert_eq!(space.access(&mut physical, 11, false), Access::Bus);
    assert_eq!(space.fill_zero(11), Err(Errno::EXIST));
    space.fill(&mut physical, 11, &FULL, false).unwrap();
    assert_eq!(space.access(&mut physical, 11, false), Access::Done);
}

#[test]
fn a_protected_page_is_read_and_a_write_is_asked_for() {
    let (mut space, mut physical) = space(10..20);
    space.fill(&mut physical, 10, &FULL, true).unwrap();
    assert_eq!(space.access(&mut physical, 10, false), Access::Done);
    assert_eq!(space.access(&mut physical, 10, true), Access::Protected(Faults::Handlers));
    assert_eq!(space.page_map_bits(&physical, 10) >> 56, 0b1000_0011);
    space.write_protect(10..11, false).unwrap();
    assert_eq!(space.access(&mut physical, 10, true), Access::Done);
    assert_eq!(space.write_protect(19..21, true), Err(Errno::NOENT));
}

#[test]
fn protection_goes_with_the_registration_and_with_a_move() {
    let (mut space, mut physical) = space(10..20);
    space.fill(&mut physical, 10, &FULL, true).unwrap();
    space.fill(&mut physical, 11, &FULL, true).unwrap();
    space.unregister(10..11).unwrap();
    assert_eq!(space.access(&mut physical, 10, true), Access::Done);
    space.move_pages(&mut physical, 11..20, 100);
    assert_eq!(space.get(100).unwrap().attributes.registered, None);
    assert_eq!(space.access(&mut physical, 100, true), Access::Done);
    assert_eq!(space.access(&mut physical, 11, true), Access::Segv);
}

#[test]
fn shared_and_pinned_pages_do_not_move() {
    let (mut space, mut physical) = space(10..20);
    space.fill(&mut physical, 10, &FULL, false).unwrap();
    assert_eq!(space.take_out(&physical, 11), Err(Errno::NOENT));
    let mut child = space.fork(&mut physical);
    assert_eq!(space.take_out(&physical, 10), Err(Errno::BUSY));
    child.end(&mut physical);
    assert_eq!(space.take_out(&physical, 10), Err(Errno::BUSY), "also where the other has ended");
    assert_eq!(space.access(&mut physical, 10, true), Access::Done);
    let id = space.frame(10).unwrap();
    physical.pin(id);
    assert_eq!((space.take_out(&physical, 10), space.pinned_pages(&physical)), (Err(Errno::BUSY), 1));
    physical.unpin(id);
    assert_eq!(space.take_out(&physical, 10), Ok(Some(id)));
    assert_eq!(space.entry(10), Entry::Missing);
}

#[test]
fn moves_want_one_writable_mapping() {
    let (mut space, _) = space(10..20);
    let may = |space: &Space, pages| space.may_move(pages, Some(Faults::Handlers));
    assert_eq!(may(&space, 10..20), Ok(()));
    assert_eq!(may(&space, 20..21), Err(Errno::NOENT));
    for protection in [Protection::None, Protection::Read, Protection::Execute] {
        space.change(15..20, |attributes| attributes.protection = protection).unwrap();
        assert_eq!((may(&space, 15..16), may(&space, 14..16)), (Err(Errno::INVAL), Err(Errno::INVAL)));
    }
    space.change(10..11, |attributes| attributes.is_locked = true).unwrap();
    assert_eq!(may(&space, 10..11), Err(Errno::INVAL));
    space.unregister(11..12).unwrap();
    assert_eq!((may(&space, 11..12), space.may_move(11..12, None)), (Err(Errno::INVAL), Ok(())));
}

#[test]
fn a_fork_shares_until_one_writes_and_copies_what_is_pinned() {
    let (mut space, mut physical) = space(10..20);
    (10..13).for_each(|page| space.fill(&mut physical, page, &FULL, true).unwrap());
    physical.pin(space.frame(12).unwrap());
    space.change(11..12, |attributes| attributes.is_dropped_on_fork = true).unwrap();
    let mut child = space.fork(&mut physical);
    assert!(child.get(11).is_none() && child.get(10).unwrap().attributes.registered.is_none());
    assert_ne!(child.frame(12), space.frame(12));
    assert_eq!(child.frame(10), space.frame(10));
    assert_eq!(child.access(&mut physical, 10, true), Access::Done, "the child has no protection");
    assert_ne!(child.frame(10), space.frame(10));
    assert_eq!(space.access(&mut physical, 10, true), Access::Protected(Faults::Handlers));
    space.write_protect(10..11, false).unwrap();
    let own = space.frame(10);
    assert_eq!((space.access(&mut physical, 10, true), space.frame(10)), (Access::Done, own));
}

#[test]
fn a_discard_reads_as_missing_and_spares_what_is_locked() {
    let (mut space, mut physical) = space(10..20);
    space.fill(&mut physical, 10, &FULL, false).unwrap();
    space.poison(11).unwrap();
    assert_eq!(space.discard(&mut physical, 10..21), Err(Errno::NOMEM));
    assert_eq!((space.entry(10), space.entry(11), physical.used()), (Entry::Missing, Entry::Missing, 0));
    space.change(10..11, |attributes| attributes.is_locked = true).unwrap();
    assert_eq!(space.discard(&mut physical, 10..11), Err(Errno::INVAL));
}

#[test]
fn the_pagers_own_pages_are_shared_with_a_child_at_its_addresses() {
    let (mut space, mut physical) = space(10..20);
    space.set_own(0x5000, Own { is_exclusive: true, is_zero: false });
    space.set_own(0x6000, Own { is_exclusive: true, is_zero: true });
    let mut child = space.fork(&mut physical);
    space.share_own(&mut child, 0x4000..0x8000, 0x1_4000);
    assert_eq!(child.own(0x1_5000), Some(Own { is_exclusive: false, is_zero: false }));
    assert_eq!(child.own(0x1_6000), Some(Own { is_exclusive: true, is_zero: true }));
    assert_eq!(space.own(0x5000), Some(Own { is_exclusive: false, is_zero: false }));
    assert_eq!(child.take_own(0x1_5000).map(|own| own.is_zero), Some(false));
    assert_eq!(child.own_within(0..usize::MAX).count(), 1);
}
