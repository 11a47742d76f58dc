import CSimulation
import Glibc

/// The upstream of HTTP sources: serves pages and server-sent events over a Unix socket, and fails now and then.
///
/// It has the events of each stream so far: the page is the last of them.
final class Origin {
  private final class Visit {
    let descriptor: CInt
    var input: [UInt8] = []
    var output: [UInt8] = []
    /// The stream whose events it gets, and the number of the next one.
    var events: (stream: String, next: Int)?
    /// Whether the connection ends after the output.
    var isLast = false
    var isOver = false
    init(_ descriptor: CInt) { self.descriptor = descriptor }
  }

  private let path: String
  private let listener: CInt
  private var visits: [Visit] = []
  private var events: [String: [[UInt8]]] = [:]

  /// Unsent bytes above which no event is added.
  private static let outputLimit = 4096

  init(path: String) {
    self.path = path
    listener = sim_listen_at(path)
  }

  func close() { unlink(path) }

  /// How many events the stream has had; they are numbered from 1.
  func count(of stream: String) -> Int { events[stream]?.count ?? 0 }

  func append(_ event: [UInt8], to stream: String) { events[stream, default: []].append(event) }

  /// - Parameter isFaulty: whether replies fail.
  /// - Returns: whether there was anything to do.
  func serve(_ random: inout Random, isFaulty: Bool) -> Bool {
    var hasActed = false
    while case let descriptor = sim_accept(listener), descriptor >= 0 {
      visits.append(Visit(descriptor))
      hasActed = true
    }
    for visit in visits {
      if receive(visit) { hasActed = true }
      if !visit.isOver, visit.events == nil, let request = takeRequest(visit) {
        Report.shared.count("upstream: requests")
        reply(to: request, visit, &random, isFaulty: isFaulty)
        hasActed = true
      }
      if addEvents(visit) { hasActed = true }
      if isFaulty, !visit.output.isEmpty, random.chance(1) { cut(visit, &random) }
      flush(visit)
    }
    for visit in visits where visit.isOver { Glibc.close(visit.descriptor) }
    visits.removeAll(where: \.isOver)
    return hasActed
  }

  private func receive(_ visit: Visit) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = sim_real_recv(visit.descriptor, &buffer, buffer.count)
    if count > 0 { visit.input += buffer[..<count] }
    if count == 0 || count < 0 && errno != EAGAIN { visit.isOver = true }
    return count > 0 || visit.isOver
  }

  private struct Request {
    let stream: String
    let lastEventID: Int?
    let entityTag: String?
  }

  private func takeRequest(_ visit: Visit) -> Request? {
    let text = String(decoding: visit.input, as: UTF8.self)
    guard text.hasSuffix("\r\n\r\n") else { return nil }
    visit.input = []
    let lines = text.split(separator: "\r\n")
    func field(_ name: String) -> String? {
      lines.first { $0.lowercased().hasPrefix(name + ":") }.map { $0.dropFirst(name.count + 2) }.map { String($0) }
    }
    let stream = lines.first?.split(separator: " ").dropFirst().first?.dropFirst() ?? ""
    return Request(
      stream: String(stream), lastEventID: field("last-event-id").flatMap { Int($0) }, entityTag: field("if-none-match")
    )
  }

  private func reply(to request: Request, _ visit: Visit, _ random: inout Random, isFaulty: Bool) {
    if isFaulty, random.chance(15) { return fail(visit, &random) }
    let known = events[request.stream] ?? []
    if request.stream.hasPrefix("e") {
      // Who comes for the first time gets the newest event.
      visit.events = (request.stream, request.lastEventID.map { $0 + 1 } ?? max(1, known.count))
      return send(visit, "200 OK", ["Content-Type: text/event-stream", "Connection: close"], nil)
    }
    let tag = "\"\(known.count)\""
    if request.entityTag == tag { return send(visit, "304 Not Modified", ["ETag: \(tag)"], nil) }
    guard let page = known.last else { return send(visit, "204 No Content", [], nil) }
    if isFaulty, random.chance(10) {
      Report.shared.count("upstream: cut off")
      visit.isLast = true
      send(visit, "200 OK", ["Content-Length: \(page.count + 1)", "ETag: \(tag)"], page)
    } else {
      visit.isLast = random.chance(30)
      send(visit, "200 OK", ["Content-Length: \(page.count)", "ETag: \(tag)"], page)
    }
  }

  private func fail(_ visit: Visit, _ random: inout Random) {
    Report.shared.count("upstream: failures")
    switch random.below(4) {
    case 0: send(visit, "500 Internal Server Error", ["Content-Length: 0"], nil)
    case 1: send(visit, "503 Service Unavailable", ["Content-Length: 0", "Retry-After: 1"], nil)
    case 2: visit.isOver = true
    default:
      visit.output += Array("HTTP/1.1 nothing\r\n".utf8)
      visit.isLast = true
    }
  }

  private func send(_ visit: Visit, _ status: String, _ fields: [String], _ body: [UInt8]?) {
    visit.output +=
      Array((["HTTP/1.1 \(status)"] + fields).map { $0 + "\r\n" }.joined().utf8) + [13, 10] + (body ?? [])
  }

  private func addEvents(_ visit: Visit) -> Bool {
    guard let (stream, next) = visit.events, let known = events[stream], next <= known.count else { return false }
    var number = next
    while number <= known.count, visit.output.count < Self.outputLimit {
      visit.output += Array("id: \(number)\ndata: ".utf8) + known[number - 1] + [10, 10]
      number += 1
    }
    visit.events = (stream, number)
    return number > next
  }

  /// Ends the connection somewhere in the output.
  private func cut(_ visit: Visit, _ random: inout Random) {
    Report.shared.count("upstream: cut off")
    visit.output.removeLast(random.below(visit.output.count))
    visit.isLast = true
    visit.events = nil
  }

  private func flush(_ visit: Visit) {
    guard !visit.isOver, !visit.output.isEmpty else { return }
    let count = visit.output.withUnsafeBytes { sim_real_send(visit.descriptor, $0.baseAddress, $0.count) }
    if count > 0 { visit.output.removeFirst(count) }
    if count < 0, errno != EAGAIN { visit.isOver = true }
    if visit.output.isEmpty, visit.isLast { visit.isOver = true }
  }
}
