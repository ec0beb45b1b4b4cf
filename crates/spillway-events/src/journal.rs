//! The journal of systemd, told of events with their names and fields.

use std::fmt::{self, Debug, Formatter};
use std::io;

use tracing::{Event, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// What a field's name begins with in the journal: `SPILLWAY_CLIENT`, `SPILLWAY_EVENT`.
const PREFIX: &str = "SPILLWAY";

/// A way to the journal.
pub(crate) struct Journal(tracing_journald::Layer);

impl Journal {
    /// The journal of this machine.
    ///
    /// # Errors
    /// There is none that listens.
    pub(crate) fn open() -> io::Result<Self> {
        // Those that a line would begin with.
        let priorities = PriorityMappings {
            error: Priority::Error,
            warn: Priority::Warning,
            info: Priority::Informational,
            debug: Priority::Debug,
            trace: Priority::Debug,
        };
        let layer = tracing_journald::Layer::new()?;
        Ok(Self(layer.with_field_prefix(Some(PREFIX.to_owned())).with_priority_mappings(priorities)))
    }

    /// Tells it of an event.
    pub(crate) fn tell<S>(&self, event: &Event<'_>, context: Context<'_, S>)
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        self.0.on_event(event, context);
    }
}

impl Debug for Journal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Journal")
    }
}
