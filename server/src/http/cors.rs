//! Pages of other origins: what a browser is told that they may do (chapter 08 section 8).

use super::answer::Answer;
use super::call::Head;
use crate::config::HttpCors;

/// The section of the configuration as headers.
pub(crate) struct Policy {
    enabled: bool,
    any_origin: bool,
    origins: Vec<String>,
    methods: String,
    headers: String,
    exposed: String,
    credentials: bool,
    private_network: bool,
}

impl Policy {
    pub(crate) fn new(cors: &HttpCors) -> Self {
        Self {
            enabled: cors.enabled,
            any_origin: cors
                .allowed_origins
                .first()
                .is_some_and(|origin| origin == "*"),
            origins: cors.allowed_origins.clone(),
            methods: cors.allowed_methods.join(","),
            headers: cors.allowed_headers.join(","),
            exposed: cors.exposed_headers.join(","),
            credentials: cors.allow_credentials,
            private_network: cors.allow_private_network,
        }
    }

    /// The answer to a preflight, which needs no token; `None` for any other request.
    pub(crate) fn preflight(&self, head: &Head) -> Option<Answer> {
        if !self.enabled || !head.preflight {
            return None;
        }
        let mut answer = self.mark(head, Answer::empty(200).without_view());
        answer = answer.with("access-control-allow-methods", &self.methods);
        answer = answer.with("access-control-allow-headers", &self.headers);
        if self.private_network && head.private_network {
            answer = answer.with("access-control-allow-private-network", "true");
        }
        Some(answer)
    }

    /// Adds what a browser needs to let its page see `answer`.
    pub(crate) fn mark(&self, head: &Head, mut answer: Answer) -> Answer {
        if !self.enabled {
            return answer;
        }
        let vary = "origin, access-control-request-method, access-control-request-headers";
        answer = answer.with("vary", vary);
        let origin = head.origin.as_ref();
        let allowed = match origin {
            _ if self.any_origin => Some("*"),
            Some(origin) if self.origins.contains(origin) => Some(origin.as_str()),
            _ => None,
        };
        if let Some(allowed) = allowed {
            answer = answer.with("access-control-allow-origin", allowed);
        }
        if self.credentials {
            answer = answer.with("access-control-allow-credentials", "true");
        }
        if !self.exposed.is_empty() && !head.preflight {
            answer = answer.with("access-control-expose-headers", &self.exposed);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::head;
    use super::super::route::Method;
    use super::*;

    fn cors() -> HttpCors {
        let config = crate::config::Config::parse("").expect("no file is legal");
        config.http.cors
    }

    fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
        let mut headers = answer.headers.iter();
        headers
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    }

    fn from(origin: &str, preflight: bool) -> Head {
        Head {
            origin: Some(origin.to_owned()),
            preflight,
            ..head(Method::Options, "/streams", "")
        }
    }

    #[test]
    fn a_preflight_is_answered_and_nothing_else_is() {
        let policy = Policy::new(&cors());
        let answer = policy.preflight(&from("http://a", true)).unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(header(&answer, "access-control-allow-origin"), Some("*"));
        let methods = header(&answer, "access-control-allow-methods");
        assert_eq!(methods, Some("GET,POST,PUT,DELETE"));
        assert!(policy.preflight(&from("http://a", false)).is_none());
    }

    #[test]
    fn only_listed_origins_are_allowed() {
        let policy = Policy::new(&HttpCors {
            allowed_origins: vec!["http://a".to_owned()],
            allow_credentials: true,
            ..cors()
        });
        let mark = |origin: &str| policy.mark(&from(origin, false), Answer::empty(200));
        let allowed = mark("http://a");
        assert_eq!(
            header(&allowed, "access-control-allow-origin"),
            Some("http://a")
        );
        assert_eq!(
            header(&allowed, "access-control-expose-headers"),
            Some("iggy-view")
        );
        let other = mark("http://b");
        assert_eq!(header(&other, "access-control-allow-origin"), None);
    }
}
