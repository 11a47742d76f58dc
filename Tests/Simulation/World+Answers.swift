import CSimulation
import Glibc

@testable import StreamServer
@testable import streamd

/// What clients have asked of the upstream of answers, and what has become of it.
final class AnswerBook {
  struct Request {
    let body: String
    let peer: Peer
    /// The name of the stream; nil: it is not known.
    var name: String?
    /// How often it was sent, except for what the server has certainly not taken for a new request.
    var takings = 0
    /// How often the upstream has got it.
    var posts = 0
    /// Whether the server has said that it has it.
    var isConfirmed = false
    /// Whether a client has asked to delete it, so that it need not be there.
    var isDeleted = false
    /// The names that it had.
    var formerNames: Set<String> = []
  }

  var requests: [Request] = []
  /// Whether requests are repeated (`idempotent`).
  let repeats: Bool
  /// Events that a stream holds.
  let events: Int
  /// Whether streams may be forgotten because memory is short.
  let lacksMemory: Bool
  private let keep: String
  private let running: Int
  private let socket: String

  init(_ random: inout Random, socket: String, lacksMemory: Bool) {
    (self.socket, self.lacksMemory) = (socket, lacksMemory)
    repeats = random.chance(25)
    events = random.pick([4, 64])
    keep = random.pick(["no", "memory", "memory", "disk"])
    running = random.pick([1, 2, 64])
  }

  /// As the configuration file has the template.
  var text: String {
    """
    [streams."q/{x}"]
    http = { url = "http://model/", unix_socket = "\(socket)", method = "POST", stream = "sse", body = "request", idempotent = \(repeats) }
    read = ["*"]
    write = ["*"]
    replay = "all"
    overflow = "block"
    block_timeout = "5s"
    buffer = { events = \(events) }
    keep = "\(keep)"
    running = \(running)
    streams = 1000
    forget = "never"

    """
  }

  /// A client is told that the stream of its request is there.
  func confirm(_ number: Int, as name: String?, isNew: Bool) {
    if let name, requests[number].name != name {
      if let former = requests[number].name { requests[number].formerNames.insert(former) }
      requests[number].name = name
    }
    if !isNew { requests[number].takings -= 1 }
    requests[number].isConfirmed = true
    Report.shared.count("answers: confirmed")
  }

  /// A client is told that its request has no effect, or not for certain.
  func refuse(_ number: Int, _ status: Int, _ text: String, isRelayed: Bool) {
    // In a restart, the next process has the request if this one had stored it.
    let isCertain = text.contains("urn:streamd:not-kept")
    if isCertain { requests[number].takings -= 1 }
    require(
      status == 503 || status == 409 && requests[number].isDeleted || status >= 500 && isRelayed, "answers",
      "a request of \(requests[number].body) is refused: \(status), \(text)")
  }

  /// A stream is gone because a client wants that.
  func noteDeletion(_ number: Int) { requests[number].isDeleted = true }

  /// Whether the stream of a request must be there.
  func isKept(_ number: Int) -> Bool {
    let request = requests[number]
    // One that is made again, because it has failed, is gone for a moment.
    return request.isConfirmed && !request.isDeleted && request.takings <= 1 && !lacksMemory
      && !Profile.hasStorageFaults
  }

  /// The upstream has got a request.
  func noteRequest(_ body: String) {
    guard let number = requests.firstIndex(where: { $0.body == body }) else {
      fail("answers", "the upstream got \(body), which nobody has asked")
    }
    requests[number].posts += 1
    let request = requests[number]
    require(
      repeats || request.posts <= request.takings, "each request once",
      "the upstream got \(body) \(request.posts) times, and clients have asked it \(request.takings) times")
  }
}

extension World {
  /// A client asks, reads or deletes.
  func useAnswers() {
    guard let answers, clients.count < profile.clients + 8 else { return }
    let known = answers.requests.indices.filter { !answers.requests[$0].isDeleted }
    let named = known.filter { answers.requests[$0].name != nil }
    switch random.below(10) {
    case 0..<4 where answers.requests.count < 30: askAnew(answers)
    case 4, 5:
      // Again, because the answer is not known, or it has failed.
      guard let number = random.maybe(known), answers.requests[number].name?.hasPrefix("q/n") == true else { return }
      ask(number, .named, answers)
    case 6 where random.chance(30):
      guard let number = random.maybe(named), let name = answers.requests[number].name else { return }
      answers.noteDeletion(number)
      asks(as: answers.requests[number].peer, .delete(name, of: number))
    default:
      guard let number = random.maybe(named), let name = answers.requests[number].name else { return }
      asks(as: .user(random.pick(StreamSpecification.users)), .read(name, of: number))
    }
  }

  private func askAnew(_ answers: AnswerBook) {
    let number = answers.requests.count
    let form = random.pick(AskingClient.Form.allCases)
    let peer = Peer.user(random.pick(StreamSpecification.users))
    let isNamed = form == .named || form == .namedWithEvents
    answers.requests.append(
      .init(body: "request \(number + 100)", peer: peer, name: isNamed ? "q/n\(number + 100)" : nil))
    ask(number, form, answers)
  }

  private func ask(_ number: Int, _ form: AskingClient.Form, _ answers: AnswerBook) {
    answers.requests[number].takings += 1
    if !asks(as: answers.requests[number].peer, .ask(number, form: form)) { answers.requests[number].takings -= 1 }
  }

  // MARK: Rules

  /// What a server has confirmed is there, also after a kill and a loss of power.
  func checkAnswers() {
    guard let answers, sim_is_dead() == 0, !machine.isStarting else { return }
    for (number, request) in answers.requests.enumerated() where answers.isKept(number) {
      guard let name = request.name, !machine.isServed(name) else { continue }
      fail("answers stay", "\(name) was confirmed, and is not there")
    }
  }

  /// All is at rest: each answer has ended, or waits for a reader, or for the end of one that does.
  func checkAnswersAtRest() {
    guard let answers, sim_is_dead() == 0 else { return }
    checkAnswers()
    let present = machine.server.streams.all.filter { $0.name.hasPrefix("q/") }
    let isHeld = present.contains { $0.log.isHeld }
    for (number, request) in answers.requests.enumerated() where answers.isKept(number) {
      guard let stream = request.name.flatMap({ machine.server.streams[$0] }), !stream.log.hasEnded else { continue }
      require(
        isHeld, "answers end",
        "\(stream.name) has not ended, and nothing holds any: \(request.posts) requests, \(model?.unfinished ?? []) are under way"
      )
    }
    for body in model?.unfinished ?? [] {
      let name = answers.requests.first { $0.body == body }?.name
      require(
        name.map { machine.server.streams[$0]?.log.hasEnded == false } ?? true, "answers end",
        "the upstream still answers \(body), whose stream is gone or has ended")
    }
  }
}
