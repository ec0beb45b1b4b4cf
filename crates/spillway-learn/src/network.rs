//! A network of dense layers with rectifiers between them, the gradient of its error, and Adam.
//!
//! Weights are kept input by input, so that one input's products go to all outputs at once; each output still
//! sums its products in the order of the inputs, as [`Layer::apply`] does, so both come to the same bits.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use spillway_policy::indigo_model::Layer;

/// What Adam remembers of the gradient and of its square, by how much a step (Kingma and Ba 2015).
const MOMENTUM: f32 = 0.9;
const SQUARE_MOMENTUM: f32 = 0.999;
/// Added to the root of the square.
const EPSILON: f32 = 1e-8;
/// Sums that a dot product keeps side by side.
const LANES: usize = 8;

/// Numbers that are learnt, with their gradient and what Adam keeps of it.
#[derive(Clone, Debug)]
struct Learnt {
    values: Vec<f32>,
    gradient: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Learnt {
    fn new(values: Vec<f32>) -> Self {
        let zeros = vec![0.0; values.len()];
        Self { values, gradient: zeros.clone(), mean: zeros.clone(), square: zeros }
    }

    fn step(&mut self, rate: f32, corrections: [f32; 2]) {
        let Self { values, gradient, mean, square } = self;
        let moments = mean.iter_mut().zip(square);
        for ((value, slope), (mean, square)) in values.iter_mut().zip(gradient).zip(moments) {
            *mean = *mean * MOMENTUM + *slope * (1.0 - MOMENTUM);
            *square = *square * SQUARE_MOMENTUM + *slope * *slope * (1.0 - SQUARE_MOMENTUM);
            *value -= rate * (*mean / corrections[0]) / ((*square / corrections[1]).sqrt() + EPSILON);
            *slope = 0.0;
        }
    }
}

#[derive(Clone, Debug)]
struct Dense {
    inputs: usize,
    outputs: usize,
    /// For each input, its weight for each output.
    weights: Learnt,
    biases: Learnt,
}

impl Dense {
    /// Of weights drawn evenly, the smaller the more inputs there are, as libraries do.
    fn drawn(inputs: usize, outputs: usize, random: &mut Xoshiro256PlusPlus) -> Self {
        let bound = 1.0 / (inputs as f32).sqrt();
        let mut draw = |count: usize| (0..count).map(|_| random.random_range(-bound..bound)).collect();
        let (weights, biases) = (Learnt::new(draw(inputs * outputs)), Learnt::new(draw(outputs)));
        Self { inputs, outputs, weights, biases }
    }

    fn forward(&self, input: &[f32], output: &mut [f32]) {
        output.copy_from_slice(&self.biases.values);
        for (x, row) in input.iter().zip(self.weights.values.chunks_exact(self.outputs)) {
            for (sum, weight) in output.iter_mut().zip(row) {
                *sum += weight * x;
            }
        }
    }

    /// Adds to the gradient what an error of the outputs makes of it, and says what that is of the inputs.
    fn backward(&mut self, input: &[f32], error: &[f32], of_input: &mut [f32]) {
        for (slope, error) in self.biases.gradient.iter_mut().zip(error) {
            *slope += error;
        }
        let rows = self.weights.values.chunks_exact(self.outputs);
        let slopes = self.weights.gradient.chunks_exact_mut(self.outputs);
        for (((x, back), row), slopes) in input.iter().zip(of_input).zip(rows).zip(slopes) {
            for (slope, error) in slopes.iter_mut().zip(error) {
                *slope += x * error;
            }
            *back = dot(row, error);
        }
    }
}

/// A sum of products, in lanes, so that the order is fixed and the lanes go side by side.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (ones, others) = (one.chunks_exact(LANES), other.chunks_exact(LANES));
    let rest = ones.remainder().iter().zip(others.remainder());
    let rest: f32 = rest.map(|(one, other)| one * other).sum();
    for (one, other) in ones.zip(others) {
        for (lane, (one, other)) in lanes.iter_mut().zip(one.iter().zip(other)) {
            *lane += one * other;
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// What is known of one choice: what was given, which output was chosen, and what it should have been.
#[derive(Clone, Copy, Debug)]
pub struct Example<'a> {
    /// What the network is given.
    pub input: &'a [f32],
    /// The output that is spoken of.
    pub output: usize,
    /// What it should be.
    pub target: f32,
}

/// A network, with what its gradient needs.
#[derive(Clone, Debug)]
pub struct Network {
    layers: Vec<Dense>,
    /// What each layer was given, and the last one's outputs.
    given: Vec<Vec<f32>>,
    /// The error of the same.
    errors: Vec<Vec<f32>>,
    /// What is left of Adam's beginning: the momenta to the power of the steps.
    left: [f32; 2],
}

impl Network {
    /// One that takes and gives so many numbers at each layer, with weights that follow from the seed.
    #[must_use]
    pub fn new(widths: &[usize], seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pairs = widths.windows(2);
        let given: Vec<Vec<f32>> = widths.iter().map(|&width| vec![0.0; width]).collect();
        Self {
            layers: pairs.map(|pair| Dense::drawn(pair[0], pair[1], &mut random)).collect(),
            errors: given.clone(),
            given,
            left: [1.0; 2],
        }
    }

    /// What it gives for an input.
    pub fn values(&mut self, input: &[f32]) -> &[f32] {
        self.given[0].copy_from_slice(input);
        for (at, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.given.split_at_mut(at + 1);
            layer.forward(&before[at], &mut after[0]);
            if at + 1 < self.layers.len() {
                after[0].iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
        self.given.last().map_or(&[], Vec::as_slice)
    }

    /// Adds an example's part of the gradient. Errors beyond 1 count as 1 (Mnih et al. 2015). Returns the
    /// error.
    fn add_gradient(&mut self, example: Example<'_>, share: f32) -> f32 {
        let error = self.values(example.input)[example.output] - example.target;
        let last = self.layers.len();
        self.errors[last].fill(0.0);
        self.errors[last][example.output] = error.clamp(-1.0, 1.0) * share;
        for at in (0..last).rev() {
            let (before, after) = self.errors.split_at_mut(at + 1);
            self.layers[at].backward(&self.given[at], &after[0], &mut before[at]);
            for (error, given) in before[at].iter_mut().zip(&self.given[at]) {
                if at > 0 && *given <= 0.0 {
                    *error = 0.0;
                }
            }
        }
        error
    }

    /// One step of Adam towards what a batch of examples asks for. Returns the mean square of their errors.
    pub fn learn<'a>(&mut self, batch: impl ExactSizeIterator<Item = Example<'a>>, rate: f32) -> f32 {
        let share = 1.0 / batch.len().max(1) as f32;
        let mut squares = 0.0;
        for example in batch {
            let error = self.add_gradient(example, share);
            squares += error * error * share;
        }
        self.left = [self.left[0] * MOMENTUM, self.left[1] * SQUARE_MOMENTUM];
        let corrections = self.left.map(|left| 1.0 - left);
        for layer in &mut self.layers {
            layer.weights.step(rate, corrections);
            layer.biases.step(rate, corrections);
        }
        squares
    }

    /// Its layers, as a model keeps them.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        let layer = |dense: &Dense| {
            let Dense { inputs, outputs, weights, biases } = dense;
            let by_output = (0..*outputs)
                .flat_map(|output| (0..*inputs).map(move |input| weights.values[input * outputs + output]));
            Layer { inputs: *inputs, weights: by_output.collect(), biases: biases.values.clone() }
        };
        self.layers.iter().map(layer).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn small() -> Network {
        Network::new(&[4, 9, 17, 3], 5)
    }

    fn loss(network: &mut Network, example: Example<'_>) -> f32 {
        let error = network.values(example.input)[example.output] - example.target;
        error * error / 2.0
    }

    /// Each slope against what the error does when its number is changed a little.
    #[test]
    fn the_gradient_is_the_slope_of_the_error() {
        const STEP: f32 = 1e-3;
        let input = [0.3, -0.7, 0.9, 0.1];
        let example = Example { input: &input, output: 1, target: 0.4 };
        let mut network = small();
        network.add_gradient(example, 1.0);
        let (mut compared, mut kinks) = (0, 0);
        for at in 0..network.layers.len() {
            for number in 0..network.layers[at].weights.values.len() {
                let slope = network.layers[at].weights.gradient[number];
                let loss_at = |change: f32| {
                    let mut other = network.clone();
                    other.layers[at].weights.values[number] += change;
                    loss(&mut other, example)
                };
                let found = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
                let alike = (found - slope).abs() < 2e-3 + 0.05 * slope.abs();
                // Where a rectifier's kink lies within the step there is no one slope.
                kinks += usize::from(!alike);
                compared += usize::from(alike && slope.abs() > 5e-3);
            }
        }
        assert!(compared > 30 && kinks <= 2, "{compared} slopes that are not nothing, {kinks} kinks");
    }

    proptest! {
        #[test]
        fn a_model_of_its_layers_gives_the_same_bits(input in any::<[i8; 4]>(), seed in any::<u64>()) {
            let mut network = Network::new(&[4, 9, 17, 3], seed);
            let input = input.map(|x| f32::from(x) / 100.0);
            let layers = network.layers();
            let mut values = input.to_vec();
            for (at, layer) in layers.iter().enumerate() {
                values = layer.apply(&values);
                if at + 1 < layers.len() {
                    values.iter_mut().for_each(|value| *value = value.max(0.0));
                }
            }
            prop_assert_eq!(values, network.values(&input));
        }

        #[test]
        fn a_dot_product_is_the_sum_of_products(
            numbers in prop::collection::vec(any::<(i16, i16)>(), 0..40),
        ) {
            let (one, other): (Vec<f32>, Vec<f32>) =
                numbers.iter().map(|(one, other)| (f32::from(*one), f32::from(*other))).unzip();
            let expected: f64 = numbers.iter().map(|(one, other)| f64::from(*one) * f64::from(*other)).sum();
            let products = numbers.iter().map(|(one, other)| f64::from(*one) * f64::from(*other));
            let most: f64 = products.map(f64::abs).sum();
            prop_assert!((f64::from(dot(&one, &other)) - expected).abs() <= 1e-5 * most);
        }
    }

    #[test]
    fn it_learns_what_it_is_shown() {
        let inputs = [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0]];
        let targets = [0.0, 1.0, 0.0, 1.0];
        let mut network = small();
        let mut error = f32::INFINITY;
        for _ in 0..2000 {
            let examples = inputs.iter().zip(targets);
            let examples = examples.map(|(input, target)| Example { input, output: 2, target });
            error = network.learn(examples.collect::<Vec<_>>().into_iter(), 1e-2);
        }
        assert!(error < 1e-4, "{error}");
    }
}
