//! Do what lines of standard input ask for with the Rust client of RocketMQ 5. The words are those of
//! tests/clients/driver.py.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use base64::{engine::general_purpose::STANDARD, Engine};
use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType, SendReceipt};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

#[derive(Default)]
struct Kept {
    producers: HashMap<String, Arc<Producer>>,
    consumers: HashMap<String, Arc<Consumer>>,
    received: Vec<Arc<MessageView>>,
}

fn kept() -> std::sync::MutexGuard<'static, Kept> {
    static KEPT: OnceLock<Mutex<Kept>> = OnceLock::new();
    KEPT.get_or_init(Mutex::default).lock().unwrap()
}

fn tell(told: Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}").unwrap();
    out.flush().unwrap();
}

fn text(asked: &Value, name: &str) -> String {
    asked[name].as_str().unwrap_or_default().to_string()
}

fn texts(asked: &Value) -> Vec<String> {
    let all = asked.as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one.as_str().unwrap().to_string()).collect()
}

fn fields_of(view: &MessageView) -> Value {
    let mut keys = view.keys().to_vec();
    keys.sort();
    json!({
        "topic": view.topic(), "body": STANDARD.encode(view.body()), "tag": view.tag(), "keys": keys,
        "properties": view.properties(), "group": view.message_group(), "id": view.message_id(),
        "attempt": view.delivery_attempt(),
    })
}

fn shown(view: MessageView) -> Value {
    let mut told = fields_of(&view);
    let mut kept = kept();
    told["number"] = json!(kept.received.len());
    kept.received.push(Arc::new(view));
    told
}

fn options(asked: &Value) -> ClientOption {
    let mut options = ClientOption::default();
    // This client wants commas between addresses.
    options.set_access_url(text(asked, "endpoints").replace(';', ","));
    options.set_enable_tls(asked["tls"] == true);
    if !text(asked, "user").is_empty() {
        options.set_access_key(text(asked, "user"));
        options.set_secret_key(text(asked, "secret"));
    }
    options
}

fn check(_transaction: String, view: MessageView) -> TransactionResolution {
    let mut told = fields_of(&view);
    told["event"] = json!("check");
    tell(told);
    match view.properties().get("check").map(String::as_str) {
        Some("commit") => TransactionResolution::COMMIT,
        Some("rollback") => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

async fn producer(asked: &Value) -> Result<Value, ClientError> {
    let mut option = ProducerOption::default();
    option.set_logging_format(LoggingFormat::Json); // the terminal's would stand among the answers
    option.set_topics(texts(&asked["topics"]));
    let mut made = if asked["transactional"] == true {
        Producer::new_transaction_producer(option, options(asked), Box::new(check))?
    } else {
        Producer::new(option, options(asked))?
    };
    made.start().await?;
    kept().producers.insert(text(asked, "name"), Arc::new(made));
    Ok(json!({}))
}

async fn simple(asked: &Value) -> Result<Value, ClientError> {
    let of = &asked["subscriptions"][0];
    let mut option = SimpleConsumerOption::default();
    option.set_logging_format(LoggingFormat::Json);
    option.set_topics(vec![text(of, "topic")]);
    option.set_consumer_group(text(asked, "group"));
    let mut client_option = options(asked);
    client_option.set_long_polling_timeout(Duration::from_secs(asked["wait_s"].as_u64().unwrap()));
    let mut client = SimpleConsumer::new(option, client_option)?;
    client.start().await?;
    let filter = match (of["sql"].as_str(), of["tag"].as_str()) {
        (Some(sql), _) => FilterExpression::new(FilterType::Sql, sql),
        (_, tag) => FilterExpression::new(FilterType::Tag, tag.unwrap_or("*")),
    };
    let consumer = Consumer { client, topic: text(of, "topic"), filter };
    kept().consumers.insert(text(asked, "name"), Arc::new(consumer));
    Ok(json!({}))
}

fn message_of(asked: &Value) -> Result<impl Message, ClientError> {
    let mut builder = MessageBuilder::builder()
        .set_topic(text(asked, "topic"))
        .set_body(STANDARD.decode(text(asked, "body")).unwrap())
        .set_keys(texts(&asked["keys"]));
    if let Some(tag) = asked["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(properties) = asked["properties"].as_object() {
        let all = properties.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_string()));
        builder = builder.set_properties(all.collect::<HashMap<String, String>>());
    }
    if let Some(group) = asked["group"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(at_ms) = asked["at"].as_i64() {
        builder = builder.set_delivery_timestamp(at_ms / 1000);
    }
    if asked["is_half"] == true {
        builder = builder.enable_transaction();
    }
    builder.build()
}

fn sender(asked: &Value) -> Arc<Producer> {
    kept().producers[&text(asked, "name")].clone()
}

fn consumer(asked: &Value) -> Arc<Consumer> {
    kept().consumers[&text(asked, "name")].clone()
}

fn problem(error: ClientError) -> Value {
    json!({"error": error.to_string(), "code": null})
}

fn receipt_of(sent: Result<SendReceipt, ClientError>) -> Value {
    match sent {
        Ok(receipt) => json!({"id": receipt.message_id(), "recall": null}),
        Err(error) => problem(error),
    }
}

async fn send(asked: &Value) -> Result<Value, ClientError> {
    let producer = sender(asked);
    let mut receipts = Vec::new();
    let mut waiting = Vec::new();
    for one in asked["messages"].as_array().unwrap() {
        let message = message_of(one)?;
        if asked["at_once"] == true {
            let producer = producer.clone();
            waiting.push(tokio::spawn(async move { receipt_of(producer.send(message).await) }));
        } else {
            receipts.push(receipt_of(producer.send(message).await));
        }
    }
    for one in waiting {
        receipts.push(one.await.unwrap());
    }
    Ok(json!({ "receipts": receipts }))
}

async fn transact(asked: &Value) -> Result<Value, ClientError> {
    let mut half = asked["message"].clone();
    half["is_half"] = json!(true);
    let transaction = sender(asked).send_transaction_message(message_of(&half)?).await?;
    let told = json!({"id": transaction.message_id()});
    match asked["end"].as_str() {
        Some("commit") => transaction.commit().await?,
        Some("rollback") => transaction.rollback().await?,
        _ => {}
    }
    Ok(told)
}

async fn receive(asked: &Value) -> Result<Value, ClientError> {
    let from = consumer(asked);
    let invisible = Duration::from_secs(asked["invisible_s"].as_u64().unwrap());
    let most = asked["most"].as_i64().unwrap() as i32;
    let views = from.client.receive_with(&from.topic, &from.filter, most, invisible).await?;
    Ok(json!({"messages": views.into_iter().map(shown).collect::<Vec<_>>()}))
}

async fn ack(asked: &Value) -> Result<Value, ClientError> {
    let view = kept().received[asked["number"].as_u64().unwrap() as usize].clone();
    consumer(asked).client.ack(&*view).await?;
    Ok(json!({}))
}

async fn close(asked: &Value) -> Result<Value, ClientError> {
    let name = text(asked, "name");
    let (producer, consumer) = {
        let mut kept = kept();
        (kept.producers.remove(&name), kept.consumers.remove(&name))
    };
    if let Some(Ok(one)) = producer.map(Arc::try_unwrap) {
        one.shutdown().await?;
    }
    if let Some(Ok(one)) = consumer.map(Arc::try_unwrap) {
        one.client.shutdown().await?;
    }
    Ok(json!({}))
}

async fn answer(asked: Value) {
    let done = match asked["do"].as_str().unwrap() {
        "producer" => producer(&asked).await,
        "simple" => simple(&asked).await,
        "send" => send(&asked).await,
        "transact" => transact(&asked).await,
        "receive" => receive(&asked).await,
        "ack" => ack(&asked).await,
        "close" => close(&asked).await,
        other => Ok(json!({"error": format!("the client has no {other}"), "code": null})),
    };
    let mut told = done.unwrap_or_else(problem);
    told["answer"] = asked["answer"].clone();
    tell(told);
}

#[tokio::main]
async fn main() {
    std::fs::create_dir_all("logs").unwrap(); // where the client writes its log
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        tokio::spawn(answer(serde_json::from_str(&line).unwrap()));
    }
}
