//! `ecosystem/interposed/examples/fetch.rs` with tokio and reqwest, to compare the lines:
//! see `benches/lines`.

use futures_util::{StreamExt, stream};
use reqwest::{Client, Error};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::builder().timeout(Duration::from_secs(10)).build()?;
    let urls = stream::iter(std::env::args().skip(1));
    let mut fetched = urls.map(async |url| (fetch(&client, &url).await, url)).buffered(64);
    while let Some((size, url)) = fetched.next().await {
        match size {
            Ok(size) => println!("{size:8} {url}"),
            Err(error) => eprintln!("fetch: {url}: {error}"),
        }
    }
    Ok(())
}

async fn fetch(client: &Client, url: &str) -> Result<usize, Error> {
    Ok(client.get(url).send().await?.error_for_status()?.bytes().await?.len())
}
