import CSimulation
import RSocket

/// A request that publishes values.
struct Posting {
  let stream: String
  let maker: String
  let count: UInt64
  /// Bytes of the body that are not sent yet.
  var rest: [UInt8]
  let expectsContinue: Bool
  /// `Truth.forgets` when it began.
  let forgets: Int
  var wasHandedOver = false
}

// Values by POST, in pieces.

extension HTTPClient {
  /// - Parameter limit: in bytes.
  func sendBody(_ limit: Int) {
    guard case .publish(var posting)? = exchanges.last?.kind, !posting.rest.isEmpty, hasSentHead else { return }
    let part = Array(posting.rest.prefix(limit))
    posting.rest.removeFirst(part.count)
    exchanges[exchanges.count - 1].kind = .publish(posting)
    send(part)
  }

  /// - Parameter hasLines: each value is a line.
  func post(to stream: String, count: Int, hasLines: Bool, _ random: inout Random) {
    guard let specification = world.specification(of: stream) else { return }
    let maker = nextMaker
    let limit = min(specification.largestEvent, 60_000)
    var body: [UInt8] = []
    for number in 0..<count {
      var size = random.below(random.chance(world.profile.largeEvents / 2) ? limit : 300)
      if random.chance(1) { size = specification.largestEvent + 1 + random.below(100) }
      body += Content(maker, 0, UInt64(number + 1))
        .bytes(count: size, as: specification.content, hasLines: !hasLines && specification.isText)
      guard hasLines else { continue }
      if number + 1 < count || random.chance(50) { body += random.pick([[10], [13, 10], [10, 10]]) }
    }
    var fields = hasLines ? ["Content-Type: application/x-ndjson"] : []
    if random.chance(50) {
      fields.append("Transfer-Encoding: chunked")
      body = chunks(body, &random)
    } else {
      fields.append("Content-Length: \(body.count)")
    }
    let expectsContinue = random.chance(15)
    if expectsContinue { fields.append("Expect: 100-continue") }
    let posting = Posting(
      stream: stream, maker: maker, count: UInt64(count), rest: body, expectsContinue: expectsContinue,
      forgets: world.truth(of: stream).forgets)
    let path = "/streams/" + stream
    send("POST", path, fields, Exchange(.publish(posting), [stream], path: path, by: self), &random)
  }

  private func chunks(_ body: [UInt8], _ random: inout Random) -> [UInt8] {
    var (made, rest) = ([UInt8](), body[...])
    while !rest.isEmpty {
      let part = rest.prefix(1 + random.below(random.pick([3, 300, 30_000])))
      rest = rest.dropFirst(part.count)
      made += Array((String(part.count, radix: 16) + random.pick(["", "", ";x=1"]) + "\r\n").utf8) + part + [13, 10]
    }
    return made + Array(random.pick(["0\r\n\r\n", "00\r\nX: 1\r\n\r\n"]).utf8)
  }

  /// The maker of the next request's values.
  var nextMaker: String { "w\(number).\(requestCount)" }

  func judge(_ head: ResponseReader.Head, _ posting: Posting, isWhole: Bool) {
    let text = String(decoding: body, as: UTF8.self)
    require(
      head.status == 200 && posting.rest.isEmpty && text == "{\"accepted\":\(posting.count)}\n", "confirmations",
      "\(name) has sent all but \(posting.rest.count) bytes of \(posting.count) values, and got \(head.status): \(text)"
    )
    if posting.wasHandedOver { Report.shared.count("HTTP: handovers in the middle of a POST") }
    world.truth(of: posting.stream)
      .confirm(posting.count, of: posting.maker, since: posting.forgets, isFinal: true, to: name)
  }

  func judge(problem text: String, _ posting: Posting) {
    let truth = world.truth(of: posting.stream)
    let accepted =
      text.components(by: "\"accepted\":").dropFirst().first
      .flatMap { UInt64($0.prefix { $0.isNumber }) } ?? 0
    require(
      !text.contains("restarts before"), "every request is answered", "a restart ends \(name)'s publication: \(text)")
    let isLost = ["was changed", "has ended", "no longer"].contains { text.contains($0) }
    if isLost {
      // What it has given to its stream may be there, too.
      truth.confirm(accepted, of: posting.maker, since: posting.forgets, isFinal: false, to: name)
    } else {
      truth.end(posting.maker, at: accepted)
    }
  }
}
