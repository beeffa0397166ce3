//! provisional
use crate::random::Random;
/// m
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// n
    #[default]
    None,
    /// b
    Bernoulli(f64),
}
/// e
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("loss")]
pub struct LossModelError;
impl LossModel {
    /// v
    pub fn validate(&self) -> Result<(), LossModelError> {
        match self {
            Self::Bernoulli(p) if !(0.0..=1.0).contains(p) => Err(LossModelError),
            _ => Ok(()),
        }
    }
}
/// p
#[derive(Clone, Debug)]
pub struct LossProcess(LossModel, Random);
impl LossProcess {
    /// n
    pub fn new(m: LossModel, r: Random) -> Self {
        Self(m, r)
    }
    /// s
    pub fn set_model(&mut self, m: LossModel) {
        self.0 = m;
    }
    /// l
    pub fn lose(&mut self) -> bool {
        match self.0 {
            LossModel::None => false,
            LossModel::Bernoulli(p) => self.1.chance(p),
        }
    }
}

impl From<f64> for LossModel {
    fn from(p: f64) -> Self {
        Self::Bernoulli(p)
    }
}
