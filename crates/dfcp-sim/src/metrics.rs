//! provisional
/// o
pub fn overhead(sent: u64, useful: u64) -> f64 {
    sent as f64 / useful as f64 - 1.0
}
/// j
pub fn jain(x: &[f64]) -> Option<f64> {
    let s: f64 = x.iter().sum();
    let q: f64 = x.iter().map(|v| v * v).sum();
    (q > 0.0).then(|| s * s / (x.len() as f64 * q))
}
/// s
pub fn stability(_: &[&[f64]]) -> Option<f64> {
    None
}
/// f
pub fn friendliness(_: &[f64], _: &[f64]) -> Option<f64> {
    None
}
