import CSimulation
import Glibc

/// A client that makes one request of an answer, or reads or deletes one, on a connection of its own.
final class AskingClient: Client {
  enum Action {
    /// Makes the request with this number.
    case ask(Int, form: Form)
    /// Reads the answer with this name, made of the request with this number.
    case read(String, of: Int)
    case delete(String, of: Int)
  }

  /// How a request is made, and what the client gets.
  enum Form: CaseIterable {
    /// PUT, which gets the name.
    case named
    /// PUT, which gets the events.
    case namedWithEvents
    /// POST, which gets the name.
    case unnamed
    /// POST to /requests/, which gets the answer as from its upstream.
    case relayed
  }

  private let action: Action
  private lazy var reader = ResponseReader(client: name)
  private var head: ResponseReader.Head?
  private var text: [UInt8] = []
  /// Whether the stream had to be there when the request was sent.
  private var wasKept = false
  private var isRefused = false
  /// The number of the last event.
  private var last: Int?
  /// The reason with which the stream has ended.
  private var reason: String?

  init(_ number: Int, _ peer: Peer, _ descriptor: CInt, _ world: World, _ action: Action) {
    self.action = action
    super.init(number, peer, descriptor, world)
    isEager = true
    wasKept = world.answers!.isKept(request)
    begin()
  }

  /// A client that knows no streams learns of a failure by the end of its connection.
  private var isRelayed: Bool { if case .ask(_, .relayed) = action { head != nil } else { false } }

  override var mayEnd: Bool { isRefused || isRelayed || reader.isOver || sim_now() - caughtUpAt > 20_000_000_000 }

  private var answers: AnswerBook { world.answers! }

  private var request: Int {
    switch action {
    case .ask(let request, _), .read(_, let request), .delete(_, let request): request
    }
  }

  private func begin() {
    var lines: [String]
    var body = ""
    switch action {
    case .ask(let request, let form):
      body = answers.requests[request].body
      let path = answers.requests[request].name.map { "/streams/\($0)" } ?? "/streams/q/"
      switch form {
      case .named, .unnamed: lines = ["\(form == .named ? "PUT" : "POST") \(path) HTTP/1.1"]
      case .namedWithEvents: lines = ["PUT \(path) HTTP/1.1", "Accept: text/event-stream"]
      case .relayed: lines = ["POST /requests/q/chat HTTP/1.1"]
      }
      lines.append("Content-Length: \(body.utf8.count)")
    case .read(let name, _): lines = ["GET /streams/\(name) HTTP/1.1", "Accept: text/event-stream"]
    case .delete(let name, _): lines = ["DELETE /streams/\(name) HTTP/1.1"]
    }
    Report.shared.say("\(name) sends \(lines[0]) \(body)")
    send(
      Array(((lines + ["Host: localhost", "Connection: close"]).joined(separator: "\r\n") + "\r\n\r\n" + body).utf8))
  }

  // MARK: Judgement

  override func judge(_ bytes: UnsafeRawBufferPointer, at place: Int) -> Int {
    // A connection beyond a limit is refused in a protocol of its own.
    if place == 0, bytes.first == 0 { isRefused = true }
    if isRefused { return bytes.count }
    var offset = 0
    while let part = reader.next(in: bytes, &offset, hasBody: true) {
      switch part {
      case .head(let head):
        self.head = head
        begin(head)
      case .body(let range):
        text += UnsafeRawBufferPointer(rebasing: bytes[range])
        if isStream { readEvents() }
      case .frame: fail("responses", "\(name) got a frame of a WebSocket")
      case .end: end()
      }
    }
    return offset
  }

  private var isStream: Bool { head?["content-type"]?.hasPrefix("text/event-stream") == true }

  private func begin(_ head: ResponseReader.Head) {
    Report.shared.say("\(name) gets \(head.status)")
    guard case .ask(let request, let form) = action else { return }
    Report.shared.count("answers: \(form), \(head.status)")
    guard [200, 201].contains(head.status) || head["location"] != nil else { return }
    let location = head["location"]?.dropFirst("/streams/".count)
    answers.confirm(request, as: location.map(String.init), isNew: head.status == 201 || form == .relayed)
  }

  private func end() {
    guard let head else { return }
    switch action {
    case .ask(let request, let form):
      if head.status >= 400, form != .relayed || head["location"] == nil {
        answers.refuse(request, head.status, String(decoding: text, as: UTF8.self), isRelayed: form == .relayed)
      }
      // The response to a client that knows no streams ends only with a whole answer.
      if form == .relayed, head.status == 200 { checkIsWhole() }
    case .read(let stream, let request):
      let isExpected =
        head.status == 200 || head.status == 503 || head.status == 404 && !(wasKept && answers.isKept(request))
      require(
        isExpected, "answers", "\(name) got \(head.status) for \(stream): \(String(decoding: text, as: UTF8.self))")
    case .delete(_, let request):
      if head.status == 204 || head.status == 404 { answers.noteDeletion(request) }
      // Without the stream, nobody has made it.
      require([204, 403, 404, 503].contains(head.status), "answers", "\(name) got \(head.status) for a DELETE")
    }
  }

  private func checkIsWhole() {
    let count = Model.count(of: answers.requests[request].body)
    require(
      (last ?? 0) == count, "answers are whole",
      "\(name) was told the end of \(answers.requests[request].body) after event \(last ?? 0) of \(count)")
    Report.shared.count("answers: read as a whole")
  }

  private func readEvents() {
    while let end = text.firstRange(of: [10, 10]) {
      let block = String(decoding: text[..<end.lowerBound], as: UTF8.self)
      text.removeSubrange(..<end.upperBound)
      let lines = block.components(by: "\n")
      if lines.contains("event: end") {
        reason = lines.first { $0.hasPrefix("data: ") }
        if reason?.contains("\"finished\"") == true { checkIsWhole() }
      } else if lines.contains(where: { $0.hasPrefix("event: ") }) {
        // A marker or a gap: what a former reader has read need not be there.
      } else if let data = lines.first(where: { $0.hasPrefix("data: ") }) {
        read(data.dropFirst(6))
      }
    }
  }

  private func read(_ data: Substring) {
    let body = answers.requests[request].body
    let number = data.components(by: "\"number\":").last.flatMap { Int($0.dropLast()) } ?? 0
    require(
      data == Model.event(number, of: body), "answers", "\(name) got \(data), which is no event of \(body)")
    let follows =
      last.map { number == $0 + 1 }
      ?? (number == 1 || answers.repeats || answers.lacksMemory || Model.count(of: body) > answers.events)
    require(
      follows || answers.repeats && number == 1, "answers are whole",
      "\(name) got event \(number) of \(body) after \(last ?? 0)")
    last = number
    Report.shared.count("answers: events read")
  }
}

extension Substring {
  fileprivate func components(by mark: String) -> [String] { String(self).components(by: mark) }
}
