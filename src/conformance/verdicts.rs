//! Each verdict, and which one comes first where several would do.

use std::collections::HashSet;
use std::thread;

use super::expect::{
    begins, completes, ends, event, is_duplicate, is_error, is_in_progress, is_mismatch, is_new, is_stale,
    shows,
};
use super::{Answer, Done, End, Event, Reply, Setup, Subject};

super::cases! {
    the_first_delivery_is_new_and_the_next_ones_are_duplicates;
    a_duplicate_gets_the_response_of_the_first [Responses];
    an_id_of_any_bytes_and_any_length_is_its_own_key;
    an_empty_id_is_an_error;
    a_copy_of_a_running_event_is_in_progress [InProgress];
    a_mismatch_comes_before_a_duplicate [Fingerprints];
    a_mismatch_comes_before_in_progress [Fingerprints, InProgress];
    without_a_fingerprint_there_is_no_mismatch [Fingerprints];
    a_duplicate_comes_before_stale [Order];
    stale_comes_before_a_busy_entity [Order, InProgress];
    two_identical_deliveries_in_the_same_instant;
    copies_in_one_batch_and_across_batches [Batches];
    same_id_with_another_payload [Fingerprints];
    same_id_with_another_payload_while_the_first_runs [Fingerprints, InProgress];
    after_an_abort_the_old_fingerprint_no_longer_counts [Fingerprints];
    same_id_from_two_sources;
    a_source_and_an_id_are_never_run_together;
    a_refusal_is_kept [Refusals, Responses];
    a_passing_error_is_not_kept;
    a_skipped_event_is_told_from_an_applied_one [Order, StaleIsTold];
    a_reply_too_large_to_keep_is_still_a_completion [Responses];
    ids_with_the_same_weak_hash_are_two_keys;
    a_forgotten_id_is_new [Forget];
}

fn the_first_delivery_is_new_and_the_next_ones_are_duplicates<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1"));
    for _ in 0..3 {
        is_duplicate(&subject, &event("evt_1"));
    }
    is_new(&subject, &event("evt_2"));
    completes(&subject, begins(&subject, &event("evt_3")), "paid");
    is_duplicate(&subject, &event("evt_3"));
}

fn a_duplicate_gets_the_response_of_the_first<S: Subject>() {
    let subject = S::open(&Setup::default());
    completes(&subject, begins(&subject, &event("evt_1")), "paid");
    let _ = subject.claim(&event("evt_1"), Some(b"not this one"));
    assert_eq!(is_duplicate(&subject, &event("evt_1")).response, Reply::Stored(b"paid".into()));
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(subject.claim(&event("evt_2"), Some(&bytes)), Answer::New(()));
    assert_eq!(is_duplicate(&subject, &event("evt_2")).response, Reply::Stored(bytes));
    is_new(&subject, &event("evt_3"));
    assert_eq!(is_duplicate(&subject, &event("evt_3")).response, Reply::None, "there was none");
}

fn an_id_of_any_bytes_and_any_length_is_its_own_key<S: Subject>() {
    let subject = S::open(&Setup::default());
    let mut ids: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    ids.extend((2..=100).map(|len| vec![0; len]));
    ids.extend(["evt", "evt ", " evt", "EVT", "evt\0"].map(|id| id.as_bytes().to_vec()));
    for id in &ids {
        is_new(&subject, &Event::new("stripe", id));
    }
    for id in &ids {
        is_duplicate(&subject, &Event::new("stripe", id));
    }
}

fn an_empty_id_is_an_error<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_error(&subject, &event(""));
    is_new(&subject, &event("evt_1"));
}

fn a_copy_of_a_running_event_is_in_progress<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1"));
    for _ in 0..3 {
        is_in_progress(&subject, &event("evt_1"));
        assert_eq!(subject.claim(&event("evt_1"), None), Answer::InProgress, "also in one step");
    }
    is_new(&subject, &event("evt_2"));
    completes(&subject, running, "paid");
    is_duplicate(&subject, &event("evt_1"));
}

fn a_mismatch_comes_before_a_duplicate<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1").fingerprint("one"));
    is_mismatch(&subject, &event("evt_1").fingerprint("two"));
    is_duplicate(&subject, &event("evt_1").fingerprint("one"));
}

fn a_mismatch_comes_before_in_progress<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1").fingerprint("one"));
    is_mismatch(&subject, &event("evt_1").fingerprint("two"));
    is_in_progress(&subject, &event("evt_1").fingerprint("one"));
    completes(&subject, running, "paid");
}

fn without_a_fingerprint_there_is_no_mismatch<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1").fingerprint("one"));
    is_duplicate(&subject, &event("evt_1"));
    is_new(&subject, &event("evt_2"));
    is_duplicate(&subject, &event("evt_2").fingerprint("one"));
}

fn a_duplicate_comes_before_stale<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_1").order("acct_7", 100));
    is_new(&subject, &event("evt_2").order("acct_7", 200));
    is_duplicate(&subject, &event("evt_1").order("acct_7", 100));
}

fn stale_comes_before_a_busy_entity<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2").order("acct_7", 200));
    let running = begins(&subject, &event("evt_3").order("acct_7", 300));
    is_stale(&subject, &event("evt_1").order("acct_7", 100));
    is_in_progress(&subject, &event("evt_4").order("acct_7", 400));
    completes(&subject, running, "applied");
}

fn two_identical_deliveries_in_the_same_instant<S: Subject>() {
    const THREADS: usize = 8;
    let subject = S::open(&Setup::default());
    for number in 0..20 {
        let event = event(&format!("evt_{number}"));
        let mut new = 0;
        let answers: Vec<Answer<()>> = thread::scope(|scope| {
            let claim = || subject.claim(&event, None);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a claim does not panic")).collect()
        });
        for answer in answers {
            match answer {
                Answer::New(()) => new += 1,
                Answer::Duplicate(_) | Answer::InProgress => {}
                other => panic!("a copy was told {other:?}"),
            }
        }
        assert_eq!(new, 1, "deliveries of {} that did the work", event.id.escape_ascii());
        is_duplicate(&subject, &event);
    }
}

fn copies_in_one_batch_and_across_batches<S: Subject>() {
    const THREADS: usize = 4;
    let subject = S::open(&Setup::default());
    let batch = ["evt_1", "evt_2", "evt_1", "evt_3", "evt_1"].map(event);
    let done = Answer::Duplicate(Done::default());
    let first = [Answer::New(()), Answer::New(()), done.clone(), Answer::New(()), done.clone()];
    assert_eq!(subject.claim_all(&batch), first);
    assert_eq!(subject.claim_all(&batch), [(); 5].map(|()| done.clone()));
    assert_eq!(subject.claim_all(&[]), []);

    let ids: Vec<Event> = (4..24).map(|number| event(&format!("evt_{number}"))).collect();
    let answers: Vec<(Event, Answer<()>)> = thread::scope(|scope| {
        let (subject, ids) = (&subject, &ids);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                // Each in an order of its own, with every event twice.
                let mut batch = [&ids[..], &ids[..]].concat();
                batch.rotate_left(thread * 5);
                scope.spawn(move || {
                    let answers = subject.claim_all(&batch);
                    batch.into_iter().zip(answers).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a claim does not panic")).collect()
    });
    assert_eq!(answers.len(), THREADS * ids.len() * 2);
    for event in &ids {
        let of_event = answers.iter().filter(|(asked, _)| asked.id == event.id);
        let new = of_event.filter(|(_, answer)| *answer == Answer::New(())).count();
        assert_eq!(new, 1, "copies of {} that did the work", event.id.escape_ascii());
        is_duplicate(&subject, event);
    }
}

fn same_id_with_another_payload<S: Subject>() {
    let subject = S::open(&Setup::default());
    completes(&subject, begins(&subject, &event("evt_1").fingerprint("one")), "paid");
    is_mismatch(&subject, &event("evt_1").fingerprint("two"));
    shows::<S>(&is_duplicate(&subject, &event("evt_1").fingerprint("one")), "paid");
}

fn same_id_with_another_payload_while_the_first_runs<S: Subject>() {
    let subject = S::open(&Setup::default());
    let running = begins(&subject, &event("evt_1").fingerprint("one"));
    is_mismatch(&subject, &event("evt_1").fingerprint("two"));
    ends(&subject, running, End::Abort);
    is_new(&subject, &event("evt_1").fingerprint("two"));
}

fn after_an_abort_the_old_fingerprint_no_longer_counts<S: Subject>() {
    let subject = S::open(&Setup::default());
    ends(&subject, begins(&subject, &event("evt_1").fingerprint("one")), End::Abort);
    is_new(&subject, &event("evt_1").fingerprint("two"));
    is_mismatch(&subject, &event("evt_1").fingerprint("one"));
}

fn same_id_from_two_sources<S: Subject>() {
    let subject = S::open(&Setup::default());
    completes(&subject, begins(&subject, &Event::new("tenant_1", "evt_1")), "the first tenant's");
    completes(&subject, begins(&subject, &Event::new("tenant_2", "evt_1")), "the second tenant's");
    shows::<S>(&is_duplicate(&subject, &Event::new("tenant_1", "evt_1")), "the first tenant's");
    shows::<S>(&is_duplicate(&subject, &Event::new("tenant_2", "evt_1")), "the second tenant's");
}

fn a_source_and_an_id_are_never_run_together<S: Subject>() {
    let subject = S::open(&Setup::default());
    for (source, id) in [("a", "bc"), ("ab", "c"), ("a", "b/c"), ("a/b", "c"), ("a", "b:c"), ("a:b", "c")] {
        is_new(&subject, &Event::new(source, id));
    }
}

fn a_refusal_is_kept<S: Subject>() {
    let subject = S::open(&Setup::default());
    ends(&subject, begins(&subject, &event("evt_1")), End::Refuse(b"the slot is taken".into()));
    let done = is_duplicate(&subject, &event("evt_1"));
    assert!(done.refusal, "a refusal is told from a completion");
    assert_eq!(done.response, Reply::Stored(b"the slot is taken".into()));
    is_new(&subject, &event("evt_2"));
    assert!(!is_duplicate(&subject, &event("evt_2")).refusal);
}

fn a_passing_error_is_not_kept<S: Subject>() {
    let subject = S::open(&Setup::default());
    ends(&subject, begins(&subject, &event("evt_1")), End::Abort);
    completes(&subject, begins(&subject, &event("evt_1")), "paid");
    shows::<S>(&is_duplicate(&subject, &event("evt_1")), "paid");
}

fn a_skipped_event_is_told_from_an_applied_one<S: Subject>() {
    let subject = S::open(&Setup::default());
    is_new(&subject, &event("evt_2").order("acct_7", 200));
    let skipped = subject.claim(&event("evt_1").order("acct_7", 100), None);
    assert_eq!(skipped, Answer::Stale, "it was not applied");
    is_duplicate(&subject, &event("evt_2").order("acct_7", 200));
}

fn a_reply_too_large_to_keep_is_still_a_completion<S: Subject>() {
    let setup = Setup::default();
    let subject = S::open(&setup);
    let fits = vec![b'x'; setup.max_response_len];
    ends(&subject, begins(&subject, &event("fits")), End::Complete(Some(fits.clone())));
    assert_eq!(is_duplicate(&subject, &event("fits")).response, Reply::Stored(fits));
    let too_long = vec![b'x'; setup.max_response_len + 1];
    let len = too_long.len() as u64;
    ends(&subject, begins(&subject, &event("too long")), End::Complete(Some(too_long)));
    assert_eq!(is_duplicate(&subject, &event("too long")).response, Reply::Omitted(len));
}

/// Pairs that Adler-32, CRC-32, FNV-1a and the sum of multiples of 31 (as Java hashes strings) take for
/// one, and enough others for a truncated hash to meet itself.
fn ids_with_the_same_weak_hash_are_two_keys<S: Subject>() {
    let subject = S::open(&Setup::default());
    for (one, other) in [
        ("aca", "bab"),
        ("plumless", "buckeroo"),
        ("costarring", "liquid"),
        ("declinate", "macallums"),
        ("Aa", "BB"),
    ] {
        is_new(&subject, &event(one));
        is_new(&subject, &event(other));
    }
    let ids: Vec<String> = (0..2_000).map(|number| format!("evt_{number}")).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    for id in &ids {
        is_new(&subject, &event(id));
    }
}

fn a_forgotten_id_is_new<S: Subject>() {
    let subject = S::open(&Setup::default());
    assert!(!subject.forget("stripe", b"evt_1"), "there was none");
    is_new(&subject, &event("evt_1"));
    assert!(subject.forget("stripe", b"evt_1"));
    is_new(&subject, &event("evt_1"));
    is_duplicate(&subject, &event("evt_1"));
}
