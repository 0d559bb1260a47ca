//! Which of several values an experiment uses, and in which order.

/// Returns each value once, in the order of its first occurrence.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// Returns the members of `all` that are in `named`, in the order of `all`; all of them if none is
/// named.
pub(crate) fn selected<T: Copy + PartialEq>(all: &[T], named: &[T]) -> Vec<T> {
    all.iter().copied().filter(|one| named.is_empty() || named.contains(one)).collect()
}

/// Returns the order of the `len` contestants in a round: forwards in even rounds, backwards in odd
/// ones, so that a drift within a round does not always favour the same contestant.
pub(crate) fn of_round(round: usize, len: usize) -> Vec<usize> {
    let forwards = 0..len;
    if round.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_their_direction() {
        assert_eq!(of_round(0, 3), [0, 1, 2]);
        assert_eq!(of_round(1, 3), [2, 1, 0]);
    }

    #[test]
    fn values_are_selected_once_and_in_order() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(selected(&[1, 2, 3], &[3, 1]), [1, 3]);
        assert_eq!(selected(&[1, 2, 3], &[]), [1, 2, 3]);
    }
}
