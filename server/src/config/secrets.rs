//! The secrets of `[cluster.auth]`: from the file or from the environment, and out of memory again
//! once the keys are derived from them.

use super::{Config, ConfigError, Secret};

/// Variables that win over the file (chapter 09 section 2), and the key each stands for.
const VARIABLES: [(&str, &str); 2] = [
    (
        "IGGY_CLUSTER_AUTH_SHARED_SECRET",
        "cluster.auth.shared_secret",
    ),
    (
        "IGGY_CLUSTER_AUTH_PREVIOUS_SHARED_SECRET",
        "cluster.auth.previous_shared_secret",
    ),
];

impl Config {
    /// Takes the secrets that `variable` knows. An empty one counts as unset.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] for a text that the original server would not read as a string, so
    /// that one launcher serves both. The text is not quoted.
    pub(super) fn take_secrets(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        let auth = &mut self.cluster.auth;
        let places = [&mut auth.shared_secret, &mut auth.previous_shared_secret];
        for ((name, key), place) in VARIABLES.into_iter().zip(places) {
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else {
                continue;
            };
            let secret = Secret(text);
            if !is_string(&secret.0) {
                let reason = format!(
                    "{name} reads as a list, a number or a boolean, which no secret may be"
                );
                return Err(ConfigError::rule(key, reason));
            }
            *place = secret;
        }
        Ok(())
    }

    /// Wipes the secrets. Nothing asks for them once the keys are derived.
    pub(crate) fn forget_secrets(&mut self) {
        self.cluster.auth.shared_secret = Secret::default();
        self.cluster.auth.previous_shared_secret = Secret::default();
    }
}

/// The typing of variables before the field is known (chapter 09 section 2): a text is a string
/// when it is nothing else.
fn is_string(text: &str) -> bool {
    let is_list = text.starts_with('[') && text.ends_with(']');
    let is_boolean = text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
    // Integers of either sign are floats, too.
    let is_number = text.parse::<f64>().is_ok();
    !(is_list || is_boolean || is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "0123456789abcdef0123456789abcdef";

    fn taken(value: &str) -> Result<Config, ConfigError> {
        let mut config = Config::parse("").expect("no file is legal");
        config.cluster.auth.previous_shared_secret = Secret("from the file".to_owned());
        let value = value.to_owned();
        config
            .take_secrets(move |name| {
                (name == "IGGY_CLUSTER_AUTH_SHARED_SECRET").then(|| value.clone())
            })
            .map(|()| config)
    }

    #[test]
    fn the_environment_wins_where_it_says_something() {
        let auth = taken(LONG).expect("a string").cluster.auth;
        assert_eq!(auth.shared_secret.0, LONG);
        assert_eq!(auth.previous_shared_secret.0, "from the file");
        let auth = taken("").expect("unset").cluster.auth;
        assert_eq!(auth.shared_secret.0, "");
    }

    #[test]
    fn texts_that_are_no_strings_are_refused_without_being_quoted() {
        for text in [
            "12345678901234567890123456789012",
            "-5",
            "1e5",
            "TRUE",
            "nan",
            "[abcdefgh]",
        ] {
            let error = taken(text).expect_err(text).to_string();
            assert!(!error.contains(text), "{error}");
            assert!(error.contains("cluster.auth.shared_secret"), "{error}");
        }
        assert!(taken("0x10").is_ok());
    }

    #[test]
    fn forgotten_secrets_are_gone() {
        let mut config = taken(LONG).expect("a string");
        config.forget_secrets();
        assert_eq!(config.cluster.auth.shared_secret, Secret::default());
        assert_eq!(
            config.cluster.auth.previous_shared_secret,
            Secret::default()
        );
    }
}
