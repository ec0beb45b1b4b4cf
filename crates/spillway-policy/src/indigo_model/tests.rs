//! Models as files: what is written is read, and what is not a model is refused in one line.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn card(actions: usize) -> Card {
    Card {
        format: FORMAT,
        agent: AgentKind::Dqn,
        actions: (0..actions)
            .map(|at| Action { burst_intervals: at as f64, accesses_per_interval: 10.0 })
            .collect(),
        deltas: Deltas { closeness_per_interval: 5.0, adjacent_intervals: 1.5 },
        observed_intervals: 8,
        training: Training {
            platform: "indigo".into(),
            link_bytes_per_s: 12.5e9,
            far_ns: 900.0,
            bytes: 16 << 20,
            workloads: vec![TrainedOn { workload: "scan".into(), settings: Map::new(), seed: 7 }],
            local_shares: vec![0.9, 0.1],
            contention: vec![0.0],
            episodes: 100,
            seed: 1,
        },
    }
}

/// A model whose numbers come from `weights`, over and over.
fn model_of(widths: &[usize], actions: usize, weights: &[f32]) -> Model {
    let mut more = weights.iter().copied().cycle();
    let mut inputs = FEATURES;
    let mut layers = Vec::new();
    for outputs in widths.iter().copied().chain([actions]) {
        let weights = more.by_ref().take(inputs * outputs).collect();
        layers.push(Layer { inputs, weights, biases: more.by_ref().take(outputs).collect() });
        inputs = outputs;
    }
    Model::new(card(actions), layers, vec![[0.1, 1.0, 0.9, 0.5], [0.5, 1.0, 0.5, 0.25]]).unwrap()
}

fn small() -> Model {
    model_of(&[3], 2, &[0.5, -1.0, 2.0])
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        widths in vec(1_usize..9, 0..4),
        actions in 1_usize..9,
        weights in vec(-1e3_f32..1e3, 1..50),
    ) {
        let model = model_of(&widths, actions, &weights);
        let bytes = model.encode().unwrap();
        prop_assert_eq!(&bytes, &model.encode().unwrap());
        let read = Model::decode(&bytes).unwrap();
        prop_assert_eq!(&read, &model);
        prop_assert_eq!(read.encode().unwrap(), bytes);
    }

    /// What is read after a change is a model that can be asked; all else is refused.
    #[test]
    fn whatever_is_changed_is_refused_or_a_model(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = small().encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(model) = Model::decode(&bytes) {
            let values = model.values(&[0.3; FEATURES]);
            prop_assert_eq!(values.len(), model.card().actions.len());
            prop_assert!(values.iter().all(|value| value.is_finite()));
            prop_assert!(Model::decode(&model.encode().unwrap()).is_ok());
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(Model::decode(&bytes).is_err());
    }

    /// Headers that name tensors of any place and shape.
    #[test]
    fn any_header_is_answered(
        shape in vec(any::<usize>(), 0..4),
        offsets in any::<[usize; 2]>(),
        data in vec(any::<u8>(), 0..64),
    ) {
        let header = serde_json::json!({
            "__metadata__": { KEY: serde_json::to_string(&card(1)).unwrap() },
            "contexts": { "dtype": "F32", "shape": shape, "data_offsets": offsets },
        });
        let header = header.to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        prop_assert!(Model::decode(&bytes).is_err());
    }
}

#[test]
fn what_is_cut_off_anywhere_is_refused() {
    let bytes = small().encode().unwrap();
    for end in 0..bytes.len() {
        let error = Model::decode(&bytes[..end]).unwrap_err();
        assert!(matches!(error, ModelError::Damaged(_)), "{end}: {error}");
    }
    assert!(Model::decode(&[&bytes[..], b"more"].concat()).is_err());
}

/// What a tool that knows nothing of us writes, with one tensor or with one wrong thing in it.
fn written(metadata: Option<Card>, tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let size = |dtype: Dtype| if dtype == Dtype::F64 { 8 } else { 4 };
    let zeros: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, dtype, shape)| vec![0; size(*dtype) * shape.iter().product::<usize>()])
        .collect();
    let views = tensors.iter().zip(&zeros).map(|((name, dtype, shape), bytes)| {
        (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
    });
    let card = metadata.map(|card| (KEY.to_owned(), serde_json::to_string(&card).unwrap()));
    serialize(views.collect::<Vec<_>>(), card.map(|card| HashMap::from([card]))).unwrap()
}

#[test]
fn what_is_of_another_kind_version_or_shape_is_refused_in_one_line_that_says_so() {
    use Dtype::{F32, F64};
    let (weight, bias) = ("layer.0.weight", "layer.0.bias");
    let good: [(&str, Dtype, &[usize]); 3] =
        [(weight, F32, &[2, 4]), (bias, F32, &[2]), ("contexts", F32, &[1, 4])];
    assert!(Model::decode(&written(Some(card(2)), &good)).is_ok());
    let with = |at: usize, dtype: Dtype, shape: &'static [usize]| {
        let mut tensors = good;
        tensors[at] = (tensors[at].0, dtype, shape);
        written(Some(card(2)), &tensors)
    };
    let mut newer = card(2);
    newer.format = 2;
    let mut never = card(2);
    never.actions[0].burst_intervals = -1.0;
    let mut wild = card(2);
    wild.deltas.closeness_per_interval = -5.0;
    let cases = [
        (written(None, &good), "'spillway.indigo'"),
        (written(Some(newer), &good), "format 2"),
        (written(Some(never), &good), "marking intervals"),
        (written(Some(wild), &good), "rate"),
        (written(Some(card(3)), &good), "2 outputs for 3 actions"),
        (written(Some(card(2)), &good[1..]), "tensors"),
        (written(Some(card(2)), &good[..2]), "'contexts' is not there"),
        (with(0, F64, &[2, 4]), "F64"),
        (with(0, F32, &[2, 5]), "layer 0 takes 5"),
        (with(0, F32, &[8]), "dimensions"),
        (with(1, F32, &[3]), "layer 0"),
        (with(2, F32, &[2, 2]), "rows of 2"),
        (with(2, F32, &[0, 4]), "0 contexts"),
        (b"PK\x03\x04 an archive of something else".to_vec(), "safetensors"),
        (vec![0; 5 << 20], "larger"),
    ];
    for (bytes, told) in cases {
        let error = Model::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains('\n'), "{told}: {error}");
    }
    let missing = Model::read(Path::new("/nowhere/model.safetensors")).unwrap_err().to_string();
    assert!(missing.contains("cannot be read"), "{missing}");
}

#[test]
fn numbers_that_are_none_are_refused() {
    for wrong in [f32::NAN, f32::INFINITY, 1e30] {
        let mut model = small();
        model.layers[0].weights[0] = wrong;
        assert!(Model::decode(&model.encode().unwrap()).is_err(), "{wrong}");
        let mut model = small();
        model.contexts[0][2] = wrong;
        assert!(Model::decode(&model.encode().unwrap()).is_err(), "{wrong}");
    }
}

#[test]
fn values_are_those_of_the_network_and_the_best_action_is_chosen() {
    let layers = vec![
        Layer { inputs: 4, weights: vec![1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0], biases: vec![0.0, 0.5] },
        Layer { inputs: 2, weights: vec![2.0, 0.0, 0.0, 3.0], biases: vec![0.0, 0.25] },
    ];
    let model = Model::new(card(2), layers, vec![[0.5; FEATURES]]).unwrap();
    assert_eq!(model.values(&[0.25, 0.0, 0.0, 0.0]), [0.5, 1.0]);
    assert_eq!(model.values(&[1.0, 0.0, 0.0, 0.0]), [2.0, 0.25], "what is negative inside is nothing");
    assert_eq!(model.best(&[0.25, 0.0, 0.0, 0.0]), model.card().actions[1]);
    assert_eq!(model.best(&[1.0, 0.0, 0.0, 0.0]), model.card().actions[0]);
}

#[test]
fn a_context_unlike_all_of_the_training_is_noticed() {
    let mut model = small();
    let context = |limit: u64| Context {
        local_limit_bytes: limit,
        local_peak_bytes: limit,
        far_peak_bytes: 1000 - limit,
        traffic_bytes_per_s: 1e9,
        available_bytes_per_s: 1e9,
    };
    assert!(matches!(model.advise(&context(100)), Advice::Thresholds(_)));
    assert!(matches!(model.advise(&context(200)), Advice::Thresholds(_)), "within reach");
    let Advice::Unknown { distance } = model.advise(&context(290)) else { panic!("it is far from both") };
    assert!((distance - 0.19).abs() < 1e-3, "{distance}");
    let unused = Context { traffic_bytes_per_s: 0.0, ..context(100) };
    assert!(matches!(model.advise(&unused), Advice::Unknown { .. }));
}

#[test]
fn the_shipped_model_is_whole_and_says_what_it_was_trained_on() {
    let model = Model::shipped().unwrap();
    let Card { format, agent, training, .. } = model.card();
    assert_eq!((*format, *agent), (FORMAT, AgentKind::Dqn));
    assert!(!training.workloads.is_empty() && training.workloads.iter().all(|workload| workload.seed > 100));
    assert!(model.contexts().iter().all(|known| model.distance(known) == 0.0));
}
