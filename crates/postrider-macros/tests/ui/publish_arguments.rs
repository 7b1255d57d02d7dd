#![allow(unused_variables, dead_code)]

use postrider_macros::publish;

struct Tx;

#[publish]
async fn nothing_given(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(key = |order| order.id)]
async fn no_event_type(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = " \t")]
async fn blank_event_type(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567X", aggregate = ("", 7))]
async fn event_type_too_long_and_aggregate_type_blank(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = 7)]
async fn event_type_is_a_number(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", topic = "orders")]
async fn unknown_key(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", event_type = "OrderShipped")]
async fn given_twice(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", each, each)]
async fn each_twice(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", key)]
async fn key_without_a_value(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", aggregate = "Order")]
async fn aggregate_without_an_id(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

fn main() {}
