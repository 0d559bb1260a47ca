//! The memory of a client of HTTP on tokio: reqwest.
//!
//!     fetch-tokio URL COUNT LIMIT [CERTIFICATE]

use fetch::Job;
use futures_util::{StreamExt, stream};
use reqwest::{Certificate, Client};

#[tokio::main]
async fn main() {
    let job = Job::from_args();
    let mut client = Client::builder();
    if let Some(pem) = &job.certificate {
        let certificate = Certificate::from_pem(pem).expect("a certificate");
        client = client.tls_built_in_root_certs(false).add_root_certificate(certificate);
    }
    let client = client.build().expect("a client");
    let fetches = stream::iter(0..job.count).map(|_| {
        let request = client.get(&job.url).send();
        // A task, so that all cores take part.
        tokio::spawn(async move { request.await?.error_for_status()?.bytes().await })
    });
    let fetched: Vec<_> = fetches.buffered(job.limit).collect().await;
    let lengths = fetched.into_iter().map(|body| body.expect("no panic").expect("an answer").len());
    job.report(lengths.sum());
}
