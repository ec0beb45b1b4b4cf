//! A trained agent of INDIGO's as a file: the network's weights, the actions that it chooses among, the
//! contexts that it was trained on, and what its training was.
//!
//! The file is in safetensors' format, so that other tools read it: tensors `layer.N.weight` (outputs by
//! inputs) and `layer.N.bias`, and `contexts` (one row of [`FEATURES`] numbers for each context of the
//! training), all of 32-bit floats; everything else is JSON in the metadata under `spillway.indigo`. The
//! version of that is [`FORMAT`].
//!
//! A file comes from outside: each of its numbers is checked before it is used, and what is wrong is said in
//! one line ([`ModelError`]).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::indigo_context::{Action, Advice, Advisor, Context, Deltas, FEATURES};

/// The version of the metadata that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;
/// The key of the metadata.
const KEY: &str = "spillway.indigo";
/// Most bytes of a file.
const MOST_BYTES: u64 = 4 << 20;
/// Most layers, and most numbers that one takes or gives.
const MOST_LAYERS: usize = 4;
const MOST_WIDTH: usize = 1024;
/// Largest weight of a network.
const MOST_WEIGHT: f32 = 1e4;
/// Most actions, and most contexts of a training.
const MOST_ACTIONS: usize = 256;
const MOST_CONTEXTS: usize = 1 << 14;
/// Most marking intervals that an observation, a burst or a pause between marks may take.
const MOST_INTERVALS: f64 = 1e6;

/// By how much a context may differ from the nearest one of the training, in each feature. Trainings go in
/// steps of a tenth of memory, so what lies between two of them is half a step away.
pub const REACH: f32 = 0.15;

/// Which agent was trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// The paper's: a deep Q-network that looks no step ahead.
    Dqn,
    /// A linear model for each action.
    Linear,
}

/// A workload of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainedOn {
    /// The name of the workload.
    pub workload: String,
    /// Its settings where they are not its defaults.
    pub settings: Map<String, Value>,
    /// The seed of the workload.
    pub seed: u64,
}

/// What a model was trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The platform, and with it the link.
    pub platform: String,
    /// Bandwidth of the link, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Latency of far memory, in nanoseconds.
    pub far_ns: f64,
    /// Working set of each workload, in bytes.
    pub bytes: u64,
    /// The workloads that were run.
    pub workloads: Vec<TrainedOn>,
    /// Local limits, as shares of the working set.
    pub local_shares: Vec<f64>,
    /// Shares of the link that a neighbour took.
    pub contention: Vec<f64>,
    /// Episodes for each local limit.
    pub episodes: u64,
    /// The seed of the training.
    pub seed: u64,
}

/// What a file says beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The version of all this: [`FORMAT`].
    pub format: u32,
    /// Which agent it is.
    pub agent: AgentKind,
    /// What it chooses among, in the order of the network's outputs.
    pub actions: Vec<Action>,
    /// The clustering under which it was trained.
    pub deltas: Deltas,
    /// Marking intervals over which a context is observed.
    pub observed_intervals: u32,
    /// What it was trained on.
    pub training: Training,
}

/// One layer: each output is its bias and the weighted sum of all inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Numbers that it takes.
    pub inputs: usize,
    /// For each output, as many weights as there are inputs.
    pub weights: Vec<f32>,
    /// For each output, what is added.
    pub biases: Vec<f32>,
}

impl Layer {
    /// What it gives for `input`, which is as long as it takes.
    #[must_use]
    pub fn apply(&self, input: &[f32]) -> Vec<f32> {
        let rows = self.weights.chunks_exact(self.inputs.max(1)).zip(&self.biases);
        // One sum after the other in a fixed order: the same bits on every machine.
        rows.map(|(row, bias)| row.iter().zip(input).fold(*bias, |sum, (weight, x)| sum + weight * x))
            .collect()
    }
}

/// Why a file is no model.
#[derive(Debug, Error)]
pub enum ModelError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// It is larger than any model.
    #[error("is larger than a model can be ({MOST_BYTES} bytes)")]
    TooLarge,
    /// It is no safetensors file, or one that is cut short or damaged.
    #[error("is no whole safetensors file ({0})")]
    Damaged(String),
    /// It is a safetensors file of something else.
    #[error("is not of this program: its metadata has no '{KEY}'")]
    Foreign,
    /// It was written by another version of this program.
    #[error("has format {0}, and this program reads {FORMAT}")]
    Format(u64),
    /// What it says of itself cannot be understood.
    #[error("says of itself what cannot be understood ({0})")]
    Card(String),
    /// A tensor or a number in it is not what it must be.
    #[error("is wrong: {0}")]
    Wrong(String),
}

/// A trained agent, as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    card: Card,
    layers: Vec<Layer>,
    contexts: Vec<[f32; FEATURES]>,
}

impl Model {
    /// One of these parts.
    ///
    /// # Errors
    /// They do not fit together, or one of their numbers makes no sense.
    pub fn new(card: Card, layers: Vec<Layer>, contexts: Vec<[f32; FEATURES]>) -> Result<Self, ModelError> {
        let model = Self { card, layers, contexts };
        model.check().map_err(ModelError::Wrong)?;
        Ok(model)
    }

    /// The one that this program brings along.
    ///
    /// # Errors
    /// It is damaged.
    pub fn shipped() -> Result<Self, ModelError> {
        Self::decode(include_bytes!("../models/indigo.safetensors"))
    }

    /// Reads one from a file.
    ///
    /// # Errors
    /// There is none, or it is no model.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        Self::decode(&bytes)
    }

    /// Reads one from a file's bytes.
    ///
    /// # Errors
    /// They are no model.
    pub fn decode(bytes: &[u8]) -> Result<Self, ModelError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ModelError::TooLarge);
        }
        let damaged = |error: safetensors::SafeTensorError| ModelError::Damaged(error.to_string());
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let card = header.metadata().as_ref().and_then(|metadata| metadata.get(KEY));
        let card = read_card(card.ok_or(ModelError::Foreign)?)?;
        let contexts = numbers(&tensors, "contexts", 2)?;
        if contexts.shape[1] != FEATURES {
            return Err(ModelError::Wrong(format!("'contexts' has rows of {}", contexts.shape[1])));
        }
        let contexts = contexts.values.chunks_exact(FEATURES);
        let contexts = contexts.filter_map(|row| row.try_into().ok()).collect();
        Self::new(card, read_layers(&tensors)?, contexts)
    }

    /// The bytes of a file. The same model gives the same bytes.
    ///
    /// # Errors
    /// A tensor cannot be written.
    pub fn encode(&self) -> Result<Vec<u8>, ModelError> {
        let damaged = |error: safetensors::SafeTensorError| ModelError::Damaged(error.to_string());
        let mut named: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let shape = vec![layer.biases.len(), layer.inputs];
            named.push((format!("layer.{at}.weight"), shape, bytes_of(&layer.weights)));
            named.push((format!("layer.{at}.bias"), vec![layer.biases.len()], bytes_of(&layer.biases)));
        }
        let rows: Vec<f32> = self.contexts.iter().flatten().copied().collect();
        named.push(("contexts".to_owned(), vec![self.contexts.len(), FEATURES], bytes_of(&rows)));
        let views = named.iter().map(|(name, shape, bytes)| {
            TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.as_str(), view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(damaged)?;
        let card = serde_json::to_string(&self.card).map_err(|error| ModelError::Card(error.to_string()))?;
        serialize(views, Some(HashMap::from([(KEY.to_owned(), card)]))).map_err(damaged)
    }

    /// What it says of itself.
    #[must_use]
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The contexts that it was trained on.
    #[must_use]
    pub fn contexts(&self) -> &[[f32; FEATURES]] {
        &self.contexts
    }

    /// What it expects of each action in a context: the more the better.
    #[must_use]
    pub fn values(&self, features: &[f32; FEATURES]) -> Vec<f32> {
        let mut values = features.to_vec();
        for (at, layer) in self.layers.iter().enumerate() {
            values = layer.apply(&values);
            if at + 1 < self.layers.len() {
                values.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
        values
    }

    /// The action of which it expects most; of equals the first.
    #[must_use]
    pub fn best(&self, features: &[f32; FEATURES]) -> Action {
        self.card.actions[best_of(&self.values(features))]
    }

    /// How far a context is from the nearest one of the training, in the largest of the differences of their
    /// features.
    #[must_use]
    pub fn distance(&self, features: &[f32; FEATURES]) -> f32 {
        let largest = |known: &[f32; FEATURES]| {
            known.iter().zip(features).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
        };
        self.contexts.iter().map(largest).fold(f32::INFINITY, f32::min)
    }

    fn check(&self) -> Result<(), String> {
        let Self { card, layers, contexts } = self;
        let actions = card.actions.len();
        within("actions", actions, 1, MOST_ACTIONS)?;
        within("layers", layers.len(), 1, MOST_LAYERS)?;
        within("contexts", contexts.len(), 1, MOST_CONTEXTS)?;
        let spans = card.actions.iter().map(|action| action.burst_intervals);
        for value in spans.chain([card.deltas.adjacent_intervals, f64::from(card.observed_intervals)]) {
            if !(0.0..=MOST_INTERVALS).contains(&value) {
                return Err(format!("{value} marking intervals are asked for"));
            }
        }
        let rates = card.actions.iter().map(|action| action.accesses_per_interval);
        if rates.chain([card.deltas.closeness_per_interval]).any(|rate| !(0.0..=1e15).contains(&rate)) {
            return Err("a rate is no number of accesses".to_owned());
        }
        let mut inputs = FEATURES;
        for (at, Layer { inputs: taken, weights, biases }) in layers.iter().enumerate() {
            within("outputs of a layer", biases.len(), 1, MOST_WIDTH)?;
            if *taken != inputs || weights.len() != inputs * biases.len() {
                return Err(format!("layer {at} takes {taken} numbers, and it is given {inputs}"));
            }
            inputs = biases.len();
        }
        if inputs != actions {
            return Err(format!("its network has {inputs} outputs for {actions} actions"));
        }
        let mut all = layers.iter().flat_map(|layer| layer.weights.iter().chain(&layer.biases));
        // What four layers of a thousand such numbers come to is finite.
        if all.any(|number| !(-MOST_WEIGHT..=MOST_WEIGHT).contains(number)) {
            return Err("a weight is no sensible number".to_owned());
        }
        if contexts.iter().flatten().any(|share| !(0.0..=1.0).contains(share)) {
            return Err("a context is no share from 0 to 1".to_owned());
        }
        Ok(())
    }
}

/// The place of the largest of some values; of equals the first.
#[must_use]
pub fn best_of(values: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate() {
        if value.total_cmp(&values[best]).is_gt() {
            best = at;
        }
    }
    best
}

fn within(what: &str, found: usize, least: usize, most: usize) -> Result<(), String> {
    if (least..=most).contains(&found) { Ok(()) } else { Err(format!("it has {found} {what}")) }
}

fn read_card(text: &str) -> Result<Card, ModelError> {
    let wrong = |error: serde_json::Error| ModelError::Card(error.to_string());
    // The version first: what another one says need not be understood.
    let value: Value = serde_json::from_str(text).map_err(wrong)?;
    match value["format"].as_u64() {
        Some(format) if format == u64::from(FORMAT) => serde_json::from_value(value).map_err(wrong),
        Some(other) => Err(ModelError::Format(other)),
        None => Err(ModelError::Card("it has no format".to_owned())),
    }
}

struct Numbers {
    shape: Vec<usize>,
    values: Vec<f32>,
}

fn numbers(tensors: &SafeTensors<'_>, name: &str, dimensions: usize) -> Result<Numbers, ModelError> {
    let wrong = |what: String| ModelError::Wrong(format!("tensor '{name}' {what}"));
    let tensor = tensors.tensor(name).map_err(|_| wrong("is not there".to_owned()))?;
    if tensor.dtype() != Dtype::F32 {
        return Err(wrong(format!("holds {:?}, not F32", tensor.dtype())));
    }
    if tensor.shape().len() != dimensions {
        return Err(wrong(format!("has {} dimensions, not {dimensions}", tensor.shape().len())));
    }
    let bytes = tensor.data().chunks_exact(size_of::<f32>());
    let values = bytes.filter_map(|bytes| bytes.try_into().ok().map(f32::from_le_bytes)).collect();
    Ok(Numbers { shape: tensor.shape().to_vec(), values })
}

fn read_layers(tensors: &SafeTensors<'_>) -> Result<Vec<Layer>, ModelError> {
    let names = tensors.names();
    let count = names.iter().filter(|name| name.ends_with(".weight")).count();
    if names.len() != 2 * count + 1 {
        return Err(ModelError::Wrong(format!("it has {} tensors, some of them unknown", names.len())));
    }
    let layer = |at: usize| {
        let weights = numbers(tensors, &format!("layer.{at}.weight"), 2)?;
        let biases = numbers(tensors, &format!("layer.{at}.bias"), 1)?;
        Ok(Layer { inputs: weights.shape[1], weights: weights.values, biases: biases.values })
    };
    (0..count).map(layer).collect()
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl Advisor for Model {
    fn advise(&mut self, context: &Context) -> Advice {
        let features = context.features();
        let distance = self.distance(&features);
        if distance > REACH { Advice::Unknown { distance } } else { Advice::Thresholds(self.best(&features)) }
    }
}

#[cfg(test)]
mod tests;
