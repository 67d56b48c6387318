//! Seeds for the fuzz targets: the captured frames and exchanges, and bodies from templates.
#![allow(dead_code)] // Each user takes a part of this.

use biplane_wire::{
    BatchBuilder, ClientCode, Command, DecodeError, Message, Operation, PrepareHeader,
    RequestHeader, request,
};

use crate::generator::Generator;
use crate::targets::BODIES;

/// A template of [`Generator::body`] for the body types that have one.
const TEMPLATES: &[(&str, &str)] = &[
    ("name", "N"),
    ("identifier", "I"),
    ("consumer", "C"),
    ("optional partition", "P"),
    ("partitioning", "R"),
    ("polling strategy", "S"),
    ("ack level", "A"),
    ("options with length", "o"),
    ("optional permissions", "p"),
    ("send metadata", "I I R 4"),
    ("get snapshot", ".2 .3 .1 .2 .5"),
    ("describe options", ".1"),
    ("attach consumer session", "16 8 8"),
    ("get client", "4"),
    ("user", "I"),
    ("create user", "N t 1 p O"),
    ("update user", "I .1 N .1 1 O"),
    ("update permissions", "I p"),
    ("change password", "I t t"),
    ("client version", "4 N N"),
    ("login by password", "N t T"),
    ("login by token", "t T"),
    ("create token", "N 8"),
    ("create token, prepared", "4 N 8 16 16 16 16"),
    ("delete token", "N"),
    ("delete token, prepared", "4 N b"),
    ("poll messages", "C I I P S 4 b"),
    ("flush unsaved buffer", "I I 4 b"),
    ("get consumer offset", "C I I P"),
    ("store consumer offset", "C I I P 8 A"),
    ("delete consumer offset", "C I I P A"),
    ("stream", "I"),
    ("create stream", "N O"),
    ("update stream", "I N O"),
    ("topic", "I I"),
    ("create topic", "I 4 N O"),
    (
        "create topic, prepared",
        "=12 .1 .4 4 4 .1 .65 o =2 4 8 4 8 4",
    ),
    ("update topic", "I I N O"),
    ("partitions", "I I 4"),
    (
        "create partitions, prepared",
        "=16 .1 .4 4 .1 .4 4 4 =2 4 8 4 8 4",
    ),
    ("delete segments", "I I 4 4"),
    ("truncate partition", "I I 4 8"),
    ("consumer group", "I I I"),
    ("create consumer group", "I I N"),
    ("join consumer group, prepared", "I I I 16 =2 4 4"),
    ("leave consumer group, prepared", "I I I 16"),
    ("remove member", "16"),
    ("complete revocation", "I I 8 16 4"),
    (
        "stats",
        "4 f f 8 8 8 8 8 8 8 8 4 4 4 4 8 4 4 T T T T T 4 =1 4 4 4 8 8 f 4 8 8",
    ),
    (
        "cluster metadata",
        "T =2 T T 2 2 2 2 .0 .0 T T 2 2 2 2 .1 .3",
    ),
    ("routing", "16 8 8 T T 2 2 2 2 .1 .0"),
    ("option catalog", "=2 N .2 B T N .12 B T"),
    ("client details", "4 4 .4 T =2 4 4 4 4 4 4"),
    ("clients", "4 4 .2 T 4 4 4 .3 T 4"),
    ("login reply", "4 8 4 N"),
    ("user details", "4 8 1 N o u"),
    ("users", "4 8 1 N o 4 8 1 N o"),
    ("tokens", "N 8 N 8"),
    ("raw token", "N"),
    ("stream details", "4 8 =1 8 8 N o 4 8 4 8 .1 8 8 8 N o o"),
    ("streams", "4 8 4 8 8 N o 4 8 4 8 8 N o"),
    (
        "topic details",
        "4 8 =2 8 .1 8 8 8 N o o 4 8 4 8 8 8 4 8 4 8 8 8",
    ),
    ("topics", "=2 4 8 4 8 .1 8 8 8 N o o 4 8 4 8 .2 8 8 8 N o o"),
    ("group details", "4 4 =2 N 4 =1 4 4 =3 4 4 4"),
    ("groups", "4 4 4 N 4 4 4 N"),
    ("sync reply", "8 =2 4 4"),
    ("polled messages", "4 8 4"),
    ("send confirmations", "=2 4 4 4 8 4 4 4 8"),
    ("consumer offset", "4 8 8"),
    ("login", "4 N N N t T"),
];

/// The seeds of a target of [`crate::targets::TARGETS`]: control bytes and content.
pub(crate) fn seeds(target: &str, random: &mut Generator) -> Vec<Vec<u8>> {
    let frames = frames();
    let with = |control: &[u8], bytes: &[u8]| [control, bytes].concat();
    match target {
        "deframer" => {
            let mut seeds = Vec::new();
            for (index, some) in frames.chunks(7).enumerate() {
                let stream: Vec<u8> = some.iter().flat_map(Message::to_vec).collect();
                seeds.push(with(&[index as u8, 200, index as u8, index as u8], &stream));
            }
            seeds.push(with(&[5, 255, 3, 0], &large_frame()));
            seeds.push(with(&[5, 255, 3, 1], &large_frame()));
            seeds
        }
        "frame" => frames
            .iter()
            .map(|frame| with(&[0, 0], &frame.to_vec()))
            .collect(),
        "batch" => {
            let bodies = frames.iter().filter(|frame| is_send(frame));
            let mut seeds: Vec<_> = bodies.map(|frame| with(&[0, 1, 1], frame.body())).collect();
            seeds.extend((0..8).map(|count| with(&[0, count, 2], &producer_batch(count))));
            seeds
        }
        "suffix" => frames
            .iter()
            .filter(|frame| matches!(frame.command(), Command::DoViewChange | Command::StartView))
            .map(|frame| with(&[3, 40], frame.body()))
            .collect(),
        "manifest" => frames
            .iter()
            .filter(|frame| frame.command() == Command::StateTransferTarget)
            .map(|frame| with(&[0], frame.body()))
            .collect(),
        "block" => (0..24)
            .map(|round| random.body(["O", "p", "u", "O O"][round % 4]))
            .collect(),
        "dispatch" => dispatch_seeds(&frames),
        _ => (0..BODIES.len() * 2)
            .map(|round| {
                let kind = round % BODIES.len();
                with(&[kind as u8], &body_seed(BODIES[kind].0, random))
            })
            .collect(),
    }
}

/// A valid body of a type of [`BODIES`].
pub(crate) fn body_seed(name: &str, random: &mut Generator) -> Vec<u8> {
    let template = TEMPLATES.iter().find(|(known, _)| *known == name);
    let (_, template) = template.unwrap_or_else(|| panic!("{name} has no template"));
    random.body(template)
}

fn dispatch_seeds(frames: &[Message]) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for frame in frames {
        let (code, operation) = match frame.command() {
            Command::Request => {
                let header = frame.header::<RequestHeader>();
                let Some(code) = request::command_of(header) else {
                    continue;
                };
                (code, header.operation())
            }
            Command::Prepare => {
                let operation = frame.header::<PrepareHeader>().operation();
                (ClientCode::Ping, operation)
            }
            _ => continue,
        };
        let code = ClientCode::ALL.iter().position(|known| *known == code);
        let operation = Operation::ALL.iter().position(|known| *known == operation);
        let control = [code, operation].map(|index| index.expect("a registry") as u8);
        seeds.push([&control, frame.body()].concat());
    }
    seeds
}

fn is_send(frame: &Message) -> bool {
    frame.command() == Command::Prepare
        && frame.header::<PrepareHeader>().operation() == Operation::SendMessages
}

fn producer_batch(count: u8) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for id in 0..count {
        let payload = vec![id; usize::from(id) * 3];
        builder
            .push(u128::from(id), 1_000 + u64::from(id), &payload, &[])
            .expect("fits");
    }
    builder.finish().expect("within the span")
}

/// A frame that does not fit the staging buffer of a deframer.
fn large_frame() -> Vec<u8> {
    let mut bytes = vec![0; 90_000];
    bytes[48..52].copy_from_slice(&90_000_u32.to_le_bytes());
    bytes[60] = 8;
    bytes
}

/// Every captured frame of both planes.
fn frames() -> Vec<Message> {
    let mut frames = Vec::new();
    let files = [
        (include_str!("../golden/replica-frames.jsonl"), &["hex"][..]),
        (
            include_str!("../golden/client-exchanges.jsonl"),
            &["request_hex", "reply_hex"][..],
        ),
    ];
    for (lines, keys) in files {
        for line in lines.lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
            for key in keys {
                let bytes = hex::decode(object[key].as_str().expect("hex")).expect("hex");
                let frame: Result<_, DecodeError> = Message::from_bytes(&bytes);
                frames.push(frame.expect("captured frames pass the generic check"));
            }
        }
    }
    frames
}
