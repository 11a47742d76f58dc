import CSimulation
import Glibc

/// The upstream of answers, over a Unix socket: counts the requests, and answers each with server-sent events, or fails.
final class Model {
  private final class Visit {
    let descriptor: CInt
    var input: [UInt8] = []
    var output: [UInt8] = []
    /// The request that is being answered, and the number of its next event.
    var answer: (body: String, next: Int)?
    /// Whether the connection ends after the output.
    var isLast = false
    var isOver = false
    init(_ descriptor: CInt) { self.descriptor = descriptor }
  }

  private let path: String
  private let listener: CInt
  private var visits: [Visit] = []
  /// Called with the body of each request, once it is there.
  private let received: (String) -> Void
  /// Whether answers take time, so that much happens meanwhile.
  var isSlow = true

  init(path: String, received: @escaping (String) -> Void) {
    (self.path, self.received) = (path, received)
    listener = sim_listen_at(path)
  }

  func close() { unlink(path) }

  /// The events of an answer: few or none, or more than its stream holds.
  static func count(of body: String) -> Int { [3, 0, 8, 1, 40][(Int(body.drop { !$0.isNumber }) ?? 0) % 5] }

  static func event(_ number: Int, of body: String) -> String { "{\"body\":\"\(body)\",\"number\":\(number)}" }

  /// The requests whose answers are under way, on connections that the client has not closed.
  var unfinished: [String] { visits.compactMap(\.answer?.body) }

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
      if !visit.isOver, visit.answer == nil, let body = takeRequest(visit) {
        Report.shared.count("answers: requests")
        received(body)
        reply(to: body, visit, &random, isFaulty: isFaulty)
        hasActed = true
      }
      if goOn(visit, &random, isFaulty: isFaulty) { hasActed = true }
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

  /// The body of a request that is there as a whole.
  private func takeRequest(_ visit: Visit) -> String? {
    let parts = String(decoding: visit.input, as: UTF8.self).components(by: "\r\n\r\n")
    guard parts.count == 2 else { return nil }
    let lines = parts[0].components(by: "\r\n")
    require(lines[0] == "POST / HTTP/1.1", "answers", "the upstream of answers got \(lines[0])")
    let length = lines.first { $0.lowercased().hasPrefix("content-length: ") }.flatMap { Int($0.dropFirst(16)) }
    guard parts[1].utf8.count >= length ?? 0 else { return nil }
    visit.input = []
    return parts[1]
  }

  private func reply(to body: String, _ visit: Visit, _ random: inout Random, isFaulty: Bool) {
    if isFaulty, random.chance(20) {
      Report.shared.count("answers: failures of the upstream")
      if random.chance(50) {
        visit.isOver = true
        return
      }
      visit.output += Array("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno".utf8)
      return
    }
    let fields = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    visit.output += Array("HTTP/1.1 200 OK\r\n\(fields)\r\n".utf8)
    visit.answer = (body, 1)
  }

  /// Adds events while the client reads.
  private func goOn(_ visit: Visit, _ random: inout Random, isFaulty: Bool) -> Bool {
    guard !visit.isOver, let (body, next) = visit.answer, visit.output.count < 4096 else { return false }
    guard !isSlow || random.chance(10) else { return false }
    if isFaulty, random.chance(4) {
      Report.shared.count("answers: cut off by the upstream")
      (visit.answer, visit.isLast) = (nil, true)
      return true
    }
    if next <= Self.count(of: body) {
      let data = "data: \(Self.event(next, of: body))\n\n"
      visit.output += Array("\(String(data.utf8.count, radix: 16))\r\n\(data)\r\n".utf8)
      visit.answer = (body, next + 1)
    } else {
      visit.output += Array("0\r\n\r\n".utf8)
      visit.answer = nil
    }
    return true
  }

  private func flush(_ visit: Visit) {
    if !visit.isOver, !visit.output.isEmpty {
      let count = visit.output.withUnsafeBytes { sim_real_send(visit.descriptor, $0.baseAddress, $0.count) }
      if count > 0 { visit.output.removeFirst(count) }
      if count < 0, errno != EAGAIN { visit.isOver = true }
    }
    if visit.output.isEmpty, visit.isLast { visit.isOver = true }
  }
}
