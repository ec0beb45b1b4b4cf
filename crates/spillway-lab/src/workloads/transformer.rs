//! Transformer inference, layer by layer (INDIGO Table 3; Vaswani et al. 2017): decodes tokens for a batch of
//! sequences, where each layer is done for the whole batch before the next one, so that its weights are used
//! several times while they are near.
//!
//! Real numbers: attention with heads and a cache of keys and values, a feed-forward part, greedy choice of
//! the next token by the embedding. Simplified: normalisation without learnt scales; weights drawn at random.

use rand::RngExt;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::rng;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

/// Tokens that each sequence decodes at most.
const MOST_TOKENS: usize = 4096;
/// Weights of a layer, in squares of the width: query, key, value and output, then up and down, four each.
const LAYER_SQUARES: usize = 12;
const HEADS: usize = 4;
/// Weights that one step multiplies with.
const STEP_WEIGHTS: usize = 16384;
const LINE_WEIGHTS: u64 = 16;

/// What a run may set of [`Transformer`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransformerConfig {
    /// Working set: weights above all.
    pub bytes: u64,
    /// Seed of weights and prompts.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// How many layers the model has.
    pub layers: usize,
    /// Sequences that are decoded together.
    pub batch: usize,
    /// Tokens that are decoded for each of them.
    pub tokens: usize,
    /// Work on a cache line of 16 weights.
    pub compute_ns_per_line: u64,
}

impl Default for TransformerConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 4, layers: 48, batch: 4, tokens: 4, compute_ns_per_line: 8 }
    }
}

/// Inference by a transformer, layer by layer.
pub struct Transformer {
    config: TransformerConfig,
    regions: Vec<Region>,
    width: usize,
    words: usize,
    embedding: Array<f32>,
    weights: Array<f32>,
    /// For each layer, sequence and position a key and a value.
    cache: Array<f32>,
    /// For each sequence its hidden state and the vectors in between.
    states: Array<f32>,
    token: usize,
    layer: usize,
    sequence: usize,
    stage: Stage,
    row: usize,
    best: (usize, f32),
    /// For each sequence the prompt's token and those that were decoded.
    decoded: Vec<Vec<usize>>,
    is_done: bool,
}

/// What is done for a sequence in a layer; each stage multiplies rows of weights, which tasks share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Embed,
    Normalise,
    QueryKeyValue,
    Attend,
    Output,
    NormaliseAgain,
    Up,
    Down,
    Choose,
}

/// Where the parts of a sequence's state lie, in widths.
const HIDDEN: usize = 0;
const NORMAL: usize = 1;
const QUERY: usize = 2;
/// The value lies behind it.
const KEY: usize = 3;
const ATTENDED: usize = 5;
const INNER: usize = 6;
const STATE_WIDTHS: usize = 10;

impl Transformer {
    /// For each sequence its prompt's token and those that were decoded.
    pub fn decoded(&self) -> &[Vec<usize>] {
        &self.decoded
    }

    fn state(&self, part: usize) -> usize {
        (self.sequence * STATE_WIDTHS + part) * self.width
    }

    /// Where the first key of this layer and sequence lies in the cache; each position has a key and a value.
    fn cached(&self) -> usize {
        (self.layer * self.config.batch + self.sequence) * self.config.tokens * 2 * self.width
    }

    /// Multiplies some rows of weights, `rows` of `columns` in all, that begin `square` squares into the
    /// layer. `each` takes a row's number and product into the state. Answers whether all rows are done.
    fn multiply(
        &mut self,
        (square, rows, columns): (usize, usize, usize),
        input: usize,
        output: usize,
        each: fn(f32, f32) -> f32,
        accesses: &mut Accesses,
    ) -> bool {
        let weights = (self.layer * LAYER_SQUARES + square) * self.width * self.width;
        let (from, end) = (self.row, rows.min(self.row + (STEP_WEIGHTS / columns).max(1)));
        let (input, output) = (self.state(input), self.state(output));
        self.states.read_run(input..input + columns, accesses);
        for row in from..end {
            let start = weights + row * columns;
            let product = dot(
                self.weights.read_run(start..start + columns, accesses),
                &self.states.data()[input..input + columns],
            );
            accesses.push(Access::compute_ns(self.line_ns(columns)));
            let state = &mut self.states.data_mut()[output + row];
            *state = each(*state, product);
        }
        self.states.write_run(output + from..output + end, accesses);
        self.row = if end < rows { end } else { 0 };
        end == rows
    }

    fn line_ns(&self, weights: usize) -> u64 {
        self.config.compute_ns_per_line * (weights as u64).div_ceil(LINE_WEIGHTS)
    }

    fn embed(&mut self, accesses: &mut Accesses) {
        let word = self.decoded[self.sequence][self.token];
        let hidden = self.state(HIDDEN);
        let vector = self.embedding.read_run(word * self.width..(word + 1) * self.width, accesses);
        let scale = (self.width as f32).sqrt();
        let state = self.states.write_run(hidden..hidden + self.width, accesses);
        state.iter_mut().zip(vector).for_each(|(state, &number)| *state = number * scale);
    }

    fn normalise(&mut self, accesses: &mut Accesses) {
        let (hidden, normal) = (self.state(HIDDEN), self.state(NORMAL));
        let numbers = self.states.read_run(hidden..hidden + self.width, accesses);
        let scale = norm_scale(numbers);
        for index in 0..self.width {
            self.states.data_mut()[normal + index] = self.states.data()[hidden + index] * scale;
        }
        self.states.write_run(normal..normal + self.width, accesses);
    }

    fn attend(&mut self, accesses: &mut Accesses) {
        let (cached, width) = (self.cached(), self.width);
        let (key, positions) = (self.state(KEY), self.token + 1);
        let newest = cached + self.token * 2 * width;
        // The key and the value lie side by side, in the state as in the cache.
        let key_and_value = self.states.read_run(key..key + 2 * width, accesses);
        self.cache.write_run(newest..newest + 2 * width, accesses).copy_from_slice(key_and_value);
        let cache = self.cache.read_run(cached..cached + positions * 2 * width, accesses);
        accesses.push(Access::compute_ns(self.line_ns(cache.len())));
        let (query, attended) = (self.state(QUERY), self.state(ATTENDED));
        let query = self.states.read_run(query..query + width, accesses).to_vec();
        let output = self.states.write_run(attended..attended + width, accesses);
        attention(&query, cache, output);
    }

    /// Looks for the word whose embedding is most like the state, among some.
    fn choose(&mut self, accesses: &mut Accesses) -> bool {
        let normal = self.state(NORMAL);
        let end = self.words.min(self.row + (STEP_WEIGHTS / self.width).max(1));
        let state = self.states.read_run(normal..normal + self.width, accesses);
        for word in self.row..end {
            let vector = self.embedding.read_run(word * self.width..(word + 1) * self.width, accesses);
            accesses.push(Access::compute_ns(self.line_ns(self.width)));
            let likeness = dot(vector, state);
            if likeness > self.best.1 {
                self.best = (word, likeness);
            }
        }
        self.row = if end < self.words { end } else { 0 };
        end == self.words
    }

    /// Does a piece of the stage; answers whether the stage is over.
    fn piece(&mut self, accesses: &mut Accesses) -> bool {
        let width = self.width;
        match self.stage {
            Stage::Embed => self.embed(accesses),
            Stage::Normalise | Stage::NormaliseAgain => self.normalise(accesses),
            Stage::QueryKeyValue => {
                return self.multiply((0, 3 * width, width), NORMAL, QUERY, |_, product| product, accesses);
            }
            Stage::Attend => self.attend(accesses),
            Stage::Output => {
                return self.multiply(
                    (3, width, width),
                    ATTENDED,
                    HIDDEN,
                    |state, product| state + product,
                    accesses,
                );
            }
            Stage::Up => {
                return self.multiply(
                    (4, 4 * width, width),
                    NORMAL,
                    INNER,
                    |_, product| product.max(0.0),
                    accesses,
                );
            }
            Stage::Down => {
                let each = |state, product| state + product;
                return self.multiply((8, width, 4 * width), INNER, HIDDEN, each, accesses);
            }
            Stage::Choose => return self.choose(accesses),
        }
        true
    }

    /// The stage that follows, by layer and then by sequence: a layer is done for the whole batch before the
    /// next one.
    fn advance(&mut self) {
        self.stage = match self.stage {
            Stage::Embed => Stage::Normalise,
            Stage::Normalise if self.layer == self.config.layers => Stage::Choose,
            Stage::Normalise => Stage::QueryKeyValue,
            Stage::QueryKeyValue => Stage::Attend,
            Stage::Attend => Stage::Output,
            Stage::Output => Stage::NormaliseAgain,
            Stage::NormaliseAgain => Stage::Up,
            Stage::Up => Stage::Down,
            Stage::Down => {
                self.next_sequence();
                return;
            }
            Stage::Choose => {
                self.decoded[self.sequence].push(self.best.0);
                self.best = (0, f32::NEG_INFINITY);
                self.next_sequence();
                return;
            }
        };
    }

    fn next_sequence(&mut self) {
        self.sequence += 1;
        if self.sequence == self.config.batch {
            self.sequence = 0;
            self.layer += 1;
            if self.layer > self.config.layers {
                self.layer = 0;
                self.token += 1;
                self.is_done = self.token == self.config.tokens;
            }
        }
        self.stage = if self.layer == 0 { Stage::Embed } else { Stage::Normalise };
    }

    /// The state after a prompt's token and its layers, by the book: slow, for [`Workload::verify`].
    fn first_state(&self, word: usize) -> Vec<f32> {
        let width = self.width;
        let scale = (width as f32).sqrt();
        let vector = &self.embedding.data()[word * width..(word + 1) * width];
        let mut hidden: Vec<f32> = vector.iter().map(|number| number * scale).collect();
        let times = |layer: usize, square: usize, input: &[f32], rows: usize| -> Vec<f32> {
            let start = (layer * LAYER_SQUARES + square) * width * width;
            let weights = &self.weights.data()[start..start + rows * input.len()];
            weights.chunks(input.len()).map(|row| row.iter().zip(input).map(|(a, b)| a * b).sum()).collect()
        };
        let normal = |hidden: &[f32]| -> Vec<f32> { hidden.iter().map(|x| x * norm_scale(hidden)).collect() };
        for layer in 0..self.config.layers {
            // With one position, attention gives its value.
            let value = times(layer, 2, &normal(&hidden), width);
            let add = |hidden: &mut Vec<f32>, more: Vec<f32>| {
                hidden.iter_mut().zip(more).for_each(|(h, m)| *h += m)
            };
            add(&mut hidden, times(layer, 3, &value, width));
            let inner: Vec<f32> =
                times(layer, 4, &normal(&hidden), 4 * width).iter().map(|x| x.max(0.0)).collect();
            add(&mut hidden, times(layer, 8, &inner, width));
        }
        normal(&hidden)
    }
}

/// By which a vector is to be multiplied for a mean square of 1.
fn norm_scale(numbers: &[f32]) -> f32 {
    1.0 / (dot(numbers, numbers) / numbers.len() as f32 + 1e-6).sqrt()
}

/// Sums in 16 lanes, as the hardware that this stands for does, and always in the same order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LINE_WEIGHTS as usize];
    for (a, b) in a.chunks_exact(lanes.len()).zip(b.chunks_exact(lanes.len())) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += a * b);
    }
    lanes.iter().sum()
}

/// For each head, the values of the positions in proportion to e to the power of how like the query their
/// keys are.
fn attention(query: &[f32], cache: &[f32], output: &mut [f32]) {
    let width = query.len();
    let head_width = width / HEADS;
    output.fill(0.0);
    for head in 0..HEADS {
        let part = head * head_width..(head + 1) * head_width;
        let likeness = |position: &[f32]| -> f32 {
            let pairs = query[part.clone()].iter().zip(&position[part.clone()]);
            pairs.map(|(a, b)| a * b).sum::<f32>() / (head_width as f32).sqrt()
        };
        let scores: Vec<f32> = cache.chunks(2 * width).map(likeness).collect();
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares: Vec<f32> = scores.iter().map(|score| libm::expf(score - most)).collect();
        let sum: f32 = shares.iter().sum();
        for (position, share) in cache.chunks(2 * width).zip(shares) {
            let value = &position[width + part.start..width + part.end];
            output[part.clone()].iter_mut().zip(value).for_each(|(out, value)| *out += share / sum * value);
        }
    }
}

impl Registered for Transformer {
    type Config = TransformerConfig;
    const NAME: &'static str = "transformer";
    const ABOUT: &'static str = "transformer inference, layer by layer, for a batch";

    fn new(config: TransformerConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "layers", config.layers, 1..=1024)?;
        within(name, "batch", config.batch, 1..=1024)?;
        within(name, "tokens", config.tokens, 1..=MOST_TOKENS)?;
        at_least(name, config.bytes, 48 * 256 * (config.layers as u64 + 1) + (64 << 10))?;
        let floats = config.bytes as usize / 4;
        // The layers take nine tenths, the embedding what is left.
        let square = floats * 9 / 10 / (LAYER_SQUARES * config.layers);
        let width = (square.isqrt() / 16 * 16).max(16);
        let per_sequence = width * (2 * config.layers * config.tokens + STATE_WIDTHS);
        let held = LAYER_SQUARES * width * width * config.layers + per_sequence * config.batch;
        let words = floats.saturating_sub(held) / width;
        let least_bytes = 4 * (held + 2 * width) as u64;
        if words < 2 {
            return Err(WorkloadError::TooSmall { name, bytes: config.bytes, least_bytes });
        }
        let mut rng = rng(config.seed, 0);
        let scale = 1.0 / (width as f32).sqrt();
        let mut random = |len: usize| (0..len).map(|_| (rng.random::<f32>() - 0.5) * 3.4 * scale).collect();
        let mut space = AddressSpace::default();
        Ok(Self {
            embedding: space.array("embedding", random(words * width)),
            weights: space.array("weights", random(LAYER_SQUARES * width * width * config.layers)),
            cache: space.filled(
                "key-value cache",
                0.0,
                2 * width * config.layers * config.tokens * config.batch,
            ),
            states: space.filled("states", 0.0, STATE_WIDTHS * width * config.batch),
            token: 0,
            layer: 0,
            sequence: 0,
            stage: Stage::Embed,
            row: 0,
            best: (0, f32::NEG_INFINITY),
            decoded: (0..config.batch).map(|sequence| vec![sequence % words]).collect(),
            is_done: false,
            width,
            words,
            config,
            regions: space.into_regions(),
        })
    }
}

impl Workload for Transformer {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.config.tasks
    }

    fn step(&mut self, _task: usize, accesses: &mut Accesses) -> bool {
        if !self.is_done && self.piece(accesses) {
            self.advance();
        }
        !self.is_done
    }

    /// The first token of the first sequence is the one that the layers give by the book.
    fn verify(&self) -> Result<(), String> {
        let (Some(&prompt), Some(&chosen)) = (self.decoded[0].first(), self.decoded[0].get(1)) else {
            return Ok(());
        };
        let state = self.first_state(prompt);
        let likeness =
            |word: usize| dot(&self.embedding.data()[word * self.width..(word + 1) * self.width], &state);
        let best = (0..self.words).map(likeness).fold(f32::NEG_INFINITY, f32::max);
        // Sums in another order differ a little.
        if (likeness(chosen) - best).abs() > 1e-3 * best.abs().max(1.0) || !best.is_finite() {
            return Err(format!(
                "token {chosen} is {} like the state, the best one {best}",
                likeness(chosen)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    fn transformer(tasks: usize, batch: usize) -> Transformer {
        Transformer::new(TransformerConfig { bytes: 1 << 20, tasks, batch, ..TransformerConfig::default() })
            .unwrap()
    }

    #[test]
    fn decodes_the_same_tokens_with_any_number_of_tasks() {
        let mut decoded = Vec::new();
        for tasks in [1, 3] {
            let mut transformer = transformer(tasks, 4);
            run(&mut transformer);
            assert_eq!(transformer.verify(), Ok(()));
            assert!(transformer.decoded().iter().all(|tokens| tokens.len() == 5));
            decoded.push(transformer.decoded().to_vec());
        }
        assert_eq!(decoded[0], decoded[1]);
    }

    #[test]
    fn a_wrong_token_is_found_out() {
        let mut transformer = transformer(1, 1);
        run(&mut transformer);
        transformer.decoded[0][1] = (transformer.decoded[0][1] + 1) % transformer.words;
        assert!(transformer.verify().is_err());
    }

    #[test]
    fn each_sequence_uses_each_weight_once_a_token() {
        let accesses = |batch| {
            let mut transformer = transformer(1, batch);
            let lines = transformer.weights.len() as u64 / 16;
            (run(&mut transformer).accesses, 4 * lines * batch as u64)
        };
        for batch in [1, 4] {
            let (made, weight_lines) = accesses(batch);
            assert!(made > weight_lines && made < 2 * weight_lines, "{made} {weight_lines}");
        }
    }

    #[test]
    fn attention_weighs_values() {
        // Two positions with keys alike: the mean of their values.
        let cache: Vec<f32> = [[1.0; 8], [2.0; 8], [1.0; 8], [4.0; 8]].concat();
        let mut output = [0.0; 8];
        attention(&[0.5; 8], &cache, &mut output);
        assert!(output.iter().all(|&number| (number - 3.0f32).abs() < 1e-6), "{output:?}");
    }
}
