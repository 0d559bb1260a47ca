//! Clients of HTTP: `ureq`, `attohttpc`, `curl`, `reqwest::blocking`.

use cringle_ecosystem_interposed::{HttpServer, at_most, crowd};

/// On a busy machine, no limit of a client may end.
#[cfg(any(feature = "attohttpc", feature = "reqwest"))]
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

/// The path and the body of a job's request, and the answer to it.
fn exchange(n: usize) -> (String, String, String) {
    let (path, body) = (format!("/job/{n}"), format!("body {n};").repeat(n % 200));
    let answer = format!("{path} {body}");
    (path, body, answer)
}

#[cfg(feature = "ureq")]
mod ureq_client {
    use super::*;
    use std::sync::Arc;
    use ureq::Agent;
    use ureq::tls::{Certificate, RootCerts, TlsConfig};

    fn ask(agent: &Agent, url: &str, n: usize) {
        let (path, body, answer) = exchange(n);
        let mut response = agent.post(format!("{url}{path}")).send(&body).unwrap();
        assert_eq!(response.body_mut().read_to_string().unwrap(), answer);
    }

    #[test]
    fn ureq_waits_only_its_fiber() {
        let server = HttpServer::plain();
        let url = server.url();
        crowd("ureq", at_most(1000), move |n, waits| {
            waits.during(|| ask(&Agent::new_with_defaults(), &url, n));
        });
    }

    #[test]
    fn an_agent_of_ureq_is_shared() {
        let server = HttpServer::plain();
        let (url, agent) = (server.url(), Agent::new_with_defaults());
        crowd("ureq, one agent", at_most(1000), move |n, waits| {
            for round in 0..2 {
                waits.during(|| ask(&agent, &url, n + round));
            }
        });
    }

    #[test]
    fn ureq_with_rustls_waits_only_its_fiber() {
        let server = HttpServer::encrypted();
        let certificate = Certificate::from_pem(server.certificate().as_bytes()).unwrap();
        let roots = RootCerts::Specific(Arc::new(vec![certificate.to_owned()]));
        let tls = TlsConfig::builder().root_certs(roots).build();
        let agent: Agent = Agent::config_builder().tls_config(tls).build().into();
        let url = server.url();
        crowd("ureq, rustls", at_most(1000), move |n, waits| {
            waits.during(|| ask(&agent, &url, n));
        });
    }
}

#[cfg(feature = "attohttpc")]
#[test]
fn attohttpc_with_native_tls_waits_only_its_fiber() {
    let server = HttpServer::encrypted();
    let (url, certificate) = (server.url(), server.certificate().to_owned());
    crowd("attohttpc, native-tls", at_most(1000), move |n, waits| {
        let (path, body, answer) = exchange(n);
        let certificate = native_tls::Certificate::from_pem(certificate.as_bytes()).unwrap();
        let request = attohttpc::post(format!("{url}{path}"))
            .add_root_certificate(certificate)
            .read_timeout(HOUR);
        let found = waits.during(|| request.text(&body).send().unwrap().text().unwrap());
        assert_eq!(found, answer);
    });
}

#[cfg(feature = "curl")]
#[test]
fn curl_waits_only_its_fiber() {
    use curl::easy::Easy;

    curl::init();
    let server = HttpServer::encrypted();
    let (url, certificate) = (server.url(), server.certificate().to_owned());
    // curl refuses descriptors from `FD_SETSIZE`, 1024, on. A job and its server have up to eight.
    crowd("curl", at_most(100), move |n, waits| {
        let (path, body, answer) = exchange(n);
        let mut easy = Easy::new();
        easy.url(&format!("{url}{path}")).unwrap();
        easy.ssl_cainfo_blob(certificate.as_bytes()).unwrap();
        easy.post(true).unwrap();
        easy.post_fields_copy(body.as_bytes()).unwrap();
        let mut found = Vec::new();
        waits.during(|| {
            let mut transfer = easy.transfer();
            transfer
                .write_function(|bytes| {
                    found.extend_from_slice(bytes);
                    Ok(bytes.len())
                })
                .unwrap();
            transfer.perform().unwrap();
        });
        assert_eq!(String::from_utf8(found).unwrap(), answer);
    });
}

#[cfg(feature = "reqwest")]
#[test]
fn reqwest_blocking_waits_only_its_fiber() {
    let server = HttpServer::plain();
    let client = reqwest::blocking::Client::builder().timeout(HOUR).build().unwrap();
    let url = server.url();
    crowd("reqwest::blocking", at_most(1000), move |n, waits| {
        let (path, body, answer) = exchange(n);
        let request = client.post(format!("{url}{path}")).body(body);
        assert_eq!(waits.during(|| request.send().unwrap().text().unwrap()), answer);
    });
}
