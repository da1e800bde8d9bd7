//! Reads the statistics of a client, which are JSON. To parse them as such takes 20 ms with a thousand partitions.
//! See <https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md>.

use std::collections::HashSet;

/// Returns whether the client knows a broker.
pub(super) fn knows_brokers(statistics: &str) -> bool {
    ["\"source\":\"configured\"", "\"source\":\"learned\""].iter().any(|some| statistics.contains(some))
}

/// Returns the topics and partitions that the client reads and that have no leader, or one to which it is not connected. There are
/// none while it is connected to no broker at all: that concerns all topics, and is no news about these.
#[must_use]
pub fn out_of_reach(statistics: &str) -> Vec<(&str, i32)> {
    let Some((brokers, topics)) = statistics.split_once("\"topics\":") else { return Vec::new() };
    let connected: HashSet<_> = each(brokers, "\"nodeid\":")
        .filter(|broker| value(broker, "\"state\":\"") == Some("UP"))
        // the connection to the group's coordinator has the id of that broker, too
        .filter(|broker| value(broker, "\"source\":\"") != Some("logical"))
        .map(until_end)
        .filter(|id| !id.starts_with('-')) // that of a bootstrap server
        .collect();
    if connected.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for topic in each(topics, "\"topic\":\"") {
        let unreached = each(topic, "\"partition\":").filter(|partition| {
            value(partition, "\"desired\":") == Some("true")
                && value(partition, "\"broker\":").is_some_and(|broker| !connected.contains(broker))
        });
        found.extend(unreached.filter_map(|partition| Some((until_end(topic), until_end(partition).parse().ok()?))));
    }
    found
}

/// Yields what follows each occurrence of `key`, up to the next one.
fn each<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(key).skip(1)
}

/// Returns the first value of `key`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key).map(|(_, rest)| until_end(rest))
}

/// Returns the value that the text begins with. Neither numbers nor the names of topics and states have any of these characters.
fn until_end(text: &str) -> &str {
    text.find(['"', ',', ' ', '}']).map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(id: i32, source: &str, state: &str) -> String {
        format!(
            "\"k:9092/{id}\": {{ \"name\":\"k:9092/{id}\", \"nodeid\":{id}, \"nodename\":\"k:9092\", \"source\":\"{source}\", \
             \"state\":\"{state}\", \"stateage\":9, \"toppars\":{{ \"orders-0\": {{ \"topic\":\"orders\", \"partition\":0}} }} }} "
        )
    }

    fn partition(number: i32, broker: i32, desired: bool) -> String {
        format!(
            "\"{number}\": {{ \"partition\":{number}, \"broker\":{broker}, \"leader\":1, \"desired\":{desired}, \"unknown\":false}} "
        )
    }

    fn statistics(brokers: &[String]) -> String {
        let orders = [partition(0, 1, true), partition(1, 2, true), partition(2, 2, false), partition(-1, -1, false)];
        let delays = [partition(0, -1, true), partition(10, 12, true)];
        format!(
            "{{ \"name\": \"w\", \"brokers\":{{ {}}}, \"topics\":{{ \"orders\": {{ \"topic\":\"orders\", \"age\":5, \
             \"partitions\":{{ {}}} }} , \"orders.delays\": {{ \"topic\":\"orders.delays\", \"partitions\":{{ {}}} }} }} }}",
            brokers.join(", "),
            orders.join(", "),
            delays.join(", ")
        )
    }

    #[test]
    fn partitions_whose_leader_is_unknown_or_not_connected_are_out_of_reach() {
        let brokers = [
            broker(-1, "configured", "UP"),
            broker(1, "learned", "UP"),
            broker(2, "learned", "TRY_CONNECT"),
            broker(2, "logical", "UP"),
        ];
        let statistics = statistics(&brokers);
        assert_eq!(out_of_reach(&statistics), [("orders", 1), ("orders.delays", 0), ("orders.delays", 10)]);
        assert!(knows_brokers(&statistics));
    }

    #[test]
    fn a_client_that_is_connected_to_no_broker_says_nothing_of_single_partitions() {
        assert_eq!(out_of_reach(&statistics(&[broker(1, "learned", "DOWN"), broker(2, "learned", "TRY_CONNECT")])), []);
    }

    #[test]
    fn statistics_without_topics_have_nothing_out_of_reach() {
        assert_eq!(out_of_reach("{ \"brokers\":{ }, \"topics\":{ } }"), []);
        assert_eq!(out_of_reach("{}"), []);
        assert!(!knows_brokers("{ \"brokers\":{ } }"));
    }
}
