//! Fuzzes the reader of trained agents: bytes as they are, and as the JSON that a sound file says of itself.
#![no_main]

use spillway_policy::indigo_context::FEATURES;
use spillway_policy::indigo_model::Model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = Model::decode(data);
    let mut bytes = (data.len() as u64).to_le_bytes().to_vec();
    bytes.extend(data);
    // A layer of one action, and one context.
    bytes.extend([0; (FEATURES + 1 + FEATURES) * 4]);
    let Ok(model) = Model::decode(&bytes) else { return };
    let values = model.values(&[0.5; FEATURES]);
    assert!(values.iter().all(|value| value.is_finite()));
    assert_eq!(values.len(), model.card().actions.len());
    let again = model.encode().expect("a model that was read");
    assert_eq!(Model::decode(&again).expect("a model that was written"), model);
});
