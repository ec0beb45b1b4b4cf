//! How metrics are written as OpenMetrics text, whoever they are of.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// A value, with its labels.
pub type Labelled<'a, T> = (Vec<(&'a str, &'a str)>, T);

/// Writes one metric after the other.
pub struct Writer<'a, 'b>(pub &'a mut DescriptorEncoder<'b>);

impl Writer<'_, '_> {
    /// A number that goes up and down, in base units.
    pub fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// A number that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        count(&mut metric, value)
    }

    /// A counter of several values, told apart by a label.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: &[(&str, u64)],
    ) -> Result<(), Error> {
        let values = values.iter().map(|&(kind, value)| (vec![(label, kind)], value));
        self.labelled(name, help, values.collect())
    }

    /// A counter of several values, each with labels of its own.
    pub fn labelled(&mut self, name: &str, help: &str, values: Vec<Labelled<'_, u64>>) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.iter().try_for_each(|(labels, value)| count(&mut metric.encode_family(labels)?, *value))
    }
}

/// The unit of what has none, as OpenMetrics names it.
pub fn ratio() -> Unit {
    Unit::Other("ratio".to_owned())
}

fn count(metric: &mut MetricEncoder<'_>, value: u64) -> Result<(), Error> {
    metric.encode_counter::<NoLabelSet, u64, u64>(&value, None)
}
