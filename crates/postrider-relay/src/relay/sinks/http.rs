//! Builds HTTP sinks from their configuration.

use std::{collections::BTreeMap, time::Duration};

use postrider::ConfigError;
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
use postrider_net::TlsFiles;

use super::{cloud_events, destination, format};
use crate::config::{FormatName, Http, Route, Secret, SecretUrl, Sink, Span, Webhook};

pub(super) fn batch(sink: &Sink, config: &Http, routes: &[&Route]) -> Result<HttpBatchSink, ConfigError> {
    let place = Place {
        url: &config.url,
        path: config.path.as_deref(),
        paths: &config.paths,
        headers: &config.headers,
        health_path: config.health_path.as_deref(),
        connect_timeout: config.connect_timeout,
        tls: &config.tls,
    };
    let mut endpoint = place.endpoint(sink, routes)?;
    if let Some(token) = &config.token {
        endpoint = endpoint.token(token.expose());
    }
    let mut batch = BatchConfig::new(endpoint);
    if sink.format != FormatName::Raw {
        batch = batch.cloud_events(cloud_events(sink));
    }
    if config.item_results {
        batch = batch.item_results();
    }
    if let Some(events) = sink.batch {
        batch = batch.batch_max(events);
    }
    HttpBatchSink::new(batch)
}

pub(super) fn webhook(sink: &Sink, config: &Webhook, routes: &[&Route]) -> Result<WebhookSink, ConfigError> {
    WebhookSink::new(webhook_config(sink, config, routes)?)
}

fn webhook_config(sink: &Sink, config: &Webhook, routes: &[&Route]) -> Result<WebhookConfig, ConfigError> {
    let place = Place {
        url: &config.url,
        path: config.path.as_deref(),
        paths: &config.paths,
        headers: &config.headers,
        health_path: config.health_path.as_deref(),
        connect_timeout: config.connect_timeout,
        tls: &config.tls,
    };
    let mut webhook = WebhookConfig::new(place.endpoint(sink, routes)?).format(format(sink));
    for secret in &config.secrets {
        webhook = webhook.secret(secret.expose());
    }
    if config.unsigned {
        webhook = webhook.unsigned();
    }
    if let Some(requests) = sink.concurrent {
        webhook = webhook.concurrent_max(requests);
    }
    Ok(webhook)
}

/// What `http` and `webhook` have in common.
struct Place<'a> {
    url: &'a SecretUrl,
    path: Option<&'a str>,
    paths: &'a BTreeMap<String, String>,
    headers: &'a BTreeMap<String, Secret>,
    health_path: Option<&'a str>,
    connect_timeout: Option<Span>,
    tls: &'a TlsFiles,
}

impl Place<'_> {
    fn endpoint(&self, sink: &Sink, routes: &[&Route]) -> Result<Endpoint, ConfigError> {
        let mut endpoint = Endpoint::new(self.url.expose()).tls(self.tls.clone());
        let by_route = routes.iter().any(|route| route.topic.is_some());
        if self.path.is_some() || !self.paths.is_empty() || by_route {
            // Events without a path of their own go to the URL itself.
            endpoint = endpoint.path(destination(self.path.unwrap_or("/"), self.paths, routes)?);
        }
        for (name, value) in self.headers {
            endpoint = endpoint.header(name, value.expose());
        }
        if let Some(path) = self.health_path {
            endpoint = endpoint.health_path(path);
        }
        let request =
            sink.timeout.map_or(endpoint.request_timeout, |span| span.0.max(Duration::from_millis(1)));
        // The default must not exceed the request timeout.
        let connect = self.connect_timeout.map_or(endpoint.connect_timeout.min(request), |span| span.0);
        Ok(endpoint.timeouts(connect, request))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::parse;

    #[test]
    fn a_webhook_has_as_many_requests_at_a_time_as_the_configuration_says() {
        let text = "sources: { s: { url: s.db, routes: [{ event_type: a, sink: k }] } }\n\
                    sinks: { k: { concurrent: 1, webhook: { url: \"http://h\", unsigned: true } } }";
        let config = parse(text, HashMap::new()).unwrap();
        let sink = &config.sinks["k"];
        let webhook = webhook_config(sink, sink.webhook.as_ref().unwrap(), &[]).unwrap();
        assert_eq!(webhook.concurrent_max, 1);
    }
}
