//! What a run of the suite found.

use std::fmt;

use super::Ability;

/// What became of one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The store did as it should.
    Held,
    /// It did not; what was found instead.
    Broken(String),
    /// The store does not claim to have this ability.
    PassedOver(Ability),
}

/// What became of every scenario, by its name, in the order of running.
#[derive(Clone, Debug, Default)]
#[must_use = "a suite that nobody looks at has found nothing"]
pub struct Report {
    findings: Vec<(&'static str, Finding)>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, finding: Finding) {
        self.findings.push((name, finding));
    }

    /// Every scenario with what became of it.
    #[must_use]
    pub fn findings(&self) -> &[(&'static str, Finding)] {
        &self.findings
    }

    /// Whether nothing was broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.broken() == 0
    }

    /// Scenarios that held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.count(|finding| *finding == Finding::Held)
    }

    /// Scenarios that did not hold.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.count(|finding| matches!(finding, Finding::Broken(_)))
    }

    /// Scenarios that need what the store cannot do.
    #[must_use]
    pub fn passed_over(&self) -> usize {
        self.count(|finding| matches!(finding, Finding::PassedOver(_)))
    }

    fn count(&self, which: impl Fn(&Finding) -> bool) -> usize {
        self.findings.iter().filter(|(_, finding)| which(finding)).count()
    }
}

/// A line a scenario, and the sums.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, finding) in &self.findings {
            match finding {
                Finding::Held => writeln!(f, "held         {name}")?,
                Finding::Broken(how) => writeln!(f, "BROKEN       {name}: {how}")?,
                Finding::PassedOver(ability) => writeln!(f, "passed over  {name}: it needs {ability:?}")?,
            }
        }
        write!(f, "{} held, {} broken, {} passed over", self.held(), self.broken(), self.passed_over())
    }
}
