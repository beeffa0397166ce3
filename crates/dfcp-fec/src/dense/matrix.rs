//! Inversion of the small matrix that ties the missing source symbols to the repair symbols.

use super::MAX_K;
use crate::gf256::{Kernel, inv, mul};

/// Outcome of [`invert`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inversion {
    /// The matrix now holds its inverse.
    Done,
    /// These rows, in ascending order, are combinations of the others; the matrix is spoilt.
    Dependent(Vec<usize>),
}

/// Inverts an `n` × `n` matrix, `n` ≤ [`MAX_K`], stored by rows, in place.
///
/// Gauss-Jordan by exchange steps: for y = A·x each step trades one yᵣ for one x꜀, after `n` of
/// them x = A⁻¹·y. Pivots are searched along the row, so that a row without one is known to
/// depend on the rows that had theirs.
pub(super) fn invert(kernel: &Kernel, matrix: &mut [u8], n: usize) -> Inversion {
    debug_assert_eq!(matrix.len(), n * n);
    let mut row_of_column: Vec<Option<usize>> = vec![None; n];
    let mut column_of_row = vec![0; n];
    let mut dependent = Vec::new();
    for row in 0..n {
        let entries = &mut matrix[row * n..][..n];
        let pivot = (0..n).find(|&c| entries[c] != 0 && row_of_column[c].is_none());
        let Some(column) = pivot else {
            dependent.push(row);
            continue;
        };
        row_of_column[column] = Some(row);
        column_of_row[row] = column;
        exchange(kernel, matrix, n, row, column);
    }
    if !dependent.is_empty() {
        return Inversion::Dependent(dependent);
    }
    // Row r now yields x of its own column, and column c multiplies y of its own row.
    let exchanged = matrix.to_vec();
    for (entries, &column) in exchanged.chunks_exact(n).zip(&column_of_row) {
        for (&entry, row) in entries.iter().zip(&row_of_column) {
            // Without dependent rows every column has met its row.
            matrix[column * n + row.unwrap_or_default()] = entry;
        }
    }
    Inversion::Done
}

/// Solves row `row` for the unknown of `column` and puts the result into all other rows.
fn exchange(kernel: &Kernel, matrix: &mut [u8], n: usize, row: usize, column: usize) {
    let entries = &mut matrix[row * n..][..n];
    let scale = inv(entries[column]);
    entries[column] = 1;
    for entry in entries.iter_mut() {
        *entry = mul(*entry, scale);
    }
    let mut targets = [0; MAX_K];
    let mut factors = [0; MAX_K];
    let others = (0..n).filter(|&other| other != row);
    for ((other, target), factor) in others.zip(&mut targets).zip(&mut factors) {
        *target = other * n;
        *factor = std::mem::take(&mut matrix[other * n + column]);
    }
    let (targets, factors) = (&targets[..n - 1], &factors[..n - 1]);
    kernel.accumulate_within(matrix, n, targets, factors, &[row as u16]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn product(a: &[u8], b: &[u8], n: usize) -> Vec<u8> {
        let entry =
            |i: usize, j: usize| (0..n).fold(0, |sum, m| sum ^ mul(a[i * n + m], b[m * n + j]));
        (0..n * n).map(|at| entry(at / n, at % n)).collect()
    }

    proptest! {
        #[test]
        fn inverse_times_matrix_is_identity(
            n in 1usize..20,
            entries in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 400),
        ) {
            let matrix = &entries[..n * n];
            let mut inverse = matrix.to_vec();
            if invert(Kernel::best(), &mut inverse, n) == Inversion::Done {
                let identity: Vec<u8> =
                    (0..n * n).map(|at| u8::from(at / n == at % n)).collect();
                prop_assert_eq!(product(matrix, &inverse, n), identity.clone());
                prop_assert_eq!(product(&inverse, matrix, n), identity);
            }
        }
    }

    #[test]
    fn dependent_rows_are_named() {
        // Row 2 = row 0 + row 1, row 3 is zero.
        let mut matrix = [1, 2, 3, 4, 5, 6, 7, 8, 4, 4, 4, 12, 0, 0, 0, 0];
        let result = invert(Kernel::best(), &mut matrix, 4);
        assert_eq!(result, Inversion::Dependent(vec![2, 3]));
    }
}
