//! Choices that an environment variable names by a word.

use std::io;

/// The value of the word that the variable holds. `None` if it is unset or empty. `words` is for
/// the error, which lists the words that a user is meant to know.
pub fn of_environment<T: Copy>(
    variable: &str,
    values: &[(&str, T)],
    words: &str,
) -> io::Result<Option<T>> {
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match values.iter().find(|(word, _)| value == *word) {
        Some(&(_, choice)) => Ok(Some(choice)),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{variable} is {value:?}, must be {words}; or unset it"),
        )),
    }
}
