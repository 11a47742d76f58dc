import CSimulation
import Events
import Glibc
import RSocket
import Reactive
import StreamServer

@testable import streamd

/// A machine with a daemon, its service manager, its disk, its upstreams and its clients, and the steps that they take.
final class World {
  let seed: UInt64
  let folder: String
  /// The choices of the step that is under way.
  var random: Random
  /// How this run goes: drawn from the seed, and the same for each step.
  let profile: Profile
  let limits: Machine.Limits
  /// Listening sockets: for clients with a user, and for those over TCP.
  let listeners: [CInt]
  private let listenerNames: [String]
  var boot = 1
  /// The streams of the configuration, and all that its templates can make.
  var streams: [StreamSpecification]
  var templates: [TemplateSpecification]
  /// The reload that is under way: the streams before it, and those whose source is replaced by an equal one.
  var reloading: (former: [StreamSpecification], templates: [TemplateSpecification], replaced: Set<String>)?
  /// The streams that each template may have, if these are more than its limit.
  var madeAllowed: [String: Int] = [:]
  /// The deletions of each stream that clients have asked for, and those that are answered.
  var (deletionsSent, deletionsOver) = ([String: Int](), [String: Int]())
  private(set) var truths: [String: Truth] = [:]
  var machine: Machine!
  private(set) var origin: Origin?
  /// The requests whose answers are streams, and their upstream; nil: there are none.
  private(set) var answers: AnswerBook?
  private(set) var model: Model?
  /// The most bytes that a client sends at a time; the rest follows after the step.
  var sendLimit = Int.max
  var clients: [Client] = []
  private var clientCount = 0
  var publishers: [NamedPublisher] = []
  /// What each upstream sends next.
  var sequences: [String: (epoch: Int, next: UInt64)] = [:]
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  /// Threads' and queues' turns so far.
  private(set) var turns = 0
  var bystander: RSocketClient?
  /// Events that it has not got: the id, and the turn and the time at which it was there.
  var owed: [(id: UInt64, turn: Int, time: UInt64)] = []
  var journalWindow: (start: UInt64, lines: UInt64) = (0, 0)
  /// Connections of orderly clients may end without a reason of theirs.
  var connectionsMayEnd = false
  /// Connections end that nobody closed: the process has just been killed, or the server stops.
  var mayEndNow = false
  /// Restarts, kills and reloads so far.
  var changes = 0
  /// Streams whose source has ended at some time.
  private(set) var endedStreams: Set<String> = []
  /// What a client needs that resumes an event stream over HTTP whose connection has ended, or a pattern.
  private var positions: [EventResponse.Position] = []
  private var patternPositions: [PatternReading.Position] = []
  /// Whether the wall clock was set back: times then say little.
  var wasSetBack = false

  static let systemStreams = ["$stats", "$streams"]

  init(seed: UInt64, folder: String) {
    (self.seed, self.folder) = (seed, folder)
    var random = Random(seed)
    let profile = Profile(&random)
    self.profile = profile
    var limits = Machine.Limits()
    limits.workers = random.pick([1, 1, 2])
    if random.chance(20) { limits.connections = 8 }
    self.limits = limits
    let path = folder + ".http"
    if profile.hasOrigin { origin = Origin(path: path) }
    var kinds: [(String, StreamSpecification.Kind)] = [
      ("s0", .world), ("s1", .world), ("p0", .clients), ("p1", .clients),
    ]
    kinds += profile.hasOrigin ? [("e0", .events), ("h0", .page)] : [("s2", .world)]
    streams = kinds.map { .random($0, $1, origin: path, profile, &random) }
    // What the bystander reads is always there.
    streams[0] = StreamSpecification("s0", .world, origin: path)
    streams[0].start = .always
    if profile.largeEvents > 50 { streams[0].bytes = 160 << 10 }
    // Names of one length, as the heap is to be the same in each run.
    listenerNames = ["sim", "tcp"].map { "\($0)_\(1_000_000_000 + Int(getpid()))" }
    if !profile.derivedStreams.isEmpty || profile.hasMirror {
      streams[0].content = random.pick([.plain, .object, .object, .mixed])
      for name in profile.derivedStreams {
        let stream = StreamSpecification.random(name, derivedFrom: streams, profile, &random)
        streams.append(stream)
      }
    }
    if profile.hasMirror {
      streams.append(.random("m0", mirroring: streams[0], at: "/" + listenerNames[0], profile, &random))
    }
    var own = Random(seed &* 0x1234_5679)
    templates = profile.templates.map { TemplateSpecification($0, of: nil, profile, &own) }
    streams += templates.flatMap(\.streams)
    if profile.answers > 0 {
      let answers = AnswerBook(&own, socket: folder + ".model", lacksMemory: profile.memory != nil)
      self.answers = answers
      model = Model(path: folder + ".model") { answers.noteRequest($0) }
    }
    sim_store_limit = random.chance(15) ? 20 : 64
    connectionsMayEnd = sim_store_limit < 64 || limits.connections < 24
    listeners = listenerNames.map { sim_listen($0) }
    self.random = random
    for stream in streams {
      truths[stream.name] = Truth(stream.name, stream.kind)
      if stream.age != nil { truths[stream.name]?.mayRepeat = true }
      sequences[stream.name] = (0, 1)
    }
    for stream in derivedStreams {
      truths[stream.name]?.derive(from: stream.kind.bases.map { truths[$0]! }, largestEvent: stream.largestEvent) {
        [unowned self] in machine.firstEvent(of: $0, after: $1 - 1) == $1
      }
    }
    for (index, stream) in ["p0", "p0", "p1"].enumerated() {
      publishers.append(NamedPublisher("n\(index)", .user(StreamSpecification.users[index]), stream: stream))
    }
    if profile.setFaultRates(&self.random) { connectionsMayEnd = true }
    sim_faults_on = profile.hasFaults && self.random.chance(50) ? 1 : 0
  }

  func truth(of stream: String) -> Truth { truths[stream]! }
  func specification(of stream: String) -> StreamSpecification? { streams.first { $0.name == stream } }
  /// The streams that the configuration has itself.
  var configuredStreams: [StreamSpecification] { streams.filter { $0.template == nil } }
  var derivedStreams: [StreamSpecification] { streams.filter { !$0.kind.bases.isEmpty } }
  func publisher(_ name: String) -> NamedPublisher? { publishers.first { $0.name == name } }
  func forget(_ publisher: NamedPublisher) { publishers.removeAll { $0 === publisher } }

  /// The streams that system streams may show to a client, before and after a reload that is under way.
  func visible(to peer: Peer) -> Set<String> {
    let isOwner = peer.user == 0 || peer.user == geteuid()
    let streams = streams + (reloading?.former ?? [])
    let names = streams.filter { isOwner ? $0.isServed : $0.isVisible(to: peer) }.map { Self.shown($0.name) }
    return Set(names + (answers == nil ? [] : ["q/*"]))
  }

  /// What stands for a stream where some of its template's may be, and others not: `t/*` for `t/a`.
  static func shown(_ name: String) -> String {
    name.split(separator: "/").count > 1 ? "\(name.prefix { $0 != "/" })/*" : name
  }

  // MARK: Steps

  func run(_ steps: [Int]) {
    begin()
    for step in steps {
      Report.shared.step = step
      random = Random(seed &* 0x9e37_79b9_7f4a_7c15 ^ UInt64(step) &* 0xd6e8_feb8_6659_fd93)
      sim_seed(random.next())
      let kind = profile.step(&random)
      Report.shared.say("step \(step) at \(sim_now() / 1000) µs: \(kind), trace \(sim_trace() % 1_000_000)")
      perform(kind)
      afterStep()
      sim_trace_add(UInt64(step))
    }
    finish()
  }

  private func begin() {
    sim_seed(random.next())
    startMachine()
    bystander = connect(as: .user(1000), .rsocket) as? RSocketClient
    bystander?.isEager = true
  }

  private func afterStep() {
    turn(profile.turnsPerStep)
    for client in clients where client.isEager || client === bystander { client.receive() }
    for client in clients {
      client.flush()
      client.keepAlive()
    }
    clients.removeAll { $0.isOver }
    if sim_is_dead() != 0 {
      Report.shared.say("the process is killed in the middle")
      restartAfterDeath()
    } else if reloading != nil, !machine.isReloading {
      finishReload()
    }
    check()
  }

  private func perform(_ step: Profile.Step) {
    switch step {
    case .turn: turn(1 + random.below(64))
    case .pass:
      let span = random.pick([100_000, 1_000_000, 20_000_000, 300_000_000, 2_000_000_000, 12_000_000_000])
      pass(UInt64(span))
    case .connect:
      guard clients.count < profile.clients else { return }
      let isOrderly = !random.chance(profile.hostileClients)
      if isOrderly, !positions.isEmpty, random.chance(60) { return resume() }
      if isOrderly, !patternPositions.isEmpty, random.chance(60) { return resumePattern() }
      // The server soon ends an HTTP connection that has no request.
      connect(as: .random(&random), isOrderly ? profile.someProtocol(&random) : .hostile)?
        .subscribe(to: someStream(), &random)
    case .subscribe: orderly?.subscribe(to: someStream(), &random)
    case .ask: orderly?.ask(someStream())
    case .grant: orderly?.grant(&random)
    case .cancel: orderly?.cancel(&random)
    case .read: random.maybe(clients)?.receive(atMost: random.pick([1, 50, 5000, .max]))
    case .change: if let client = random.maybe(clients), client !== bystander { client.isEager.toggle() }
    case .leave: if let client = random.maybe(clients), client !== bystander { client.close() }
    case .emit: emit()
    case .end: end()
    case .put, .delete: changeMade(isDeletion: step == .delete)
    case .useMade: useMade()
    case .pattern: readPattern()
    case .answers: useAnswers()
    case .publish: publish()
    case .values: for client in random.shuffled(clients.filter(\.isOrderly)).prefix(2) { client.sendValues(&random) }
    case .complete: orderly?.completeChannel(&random)
    case .fireAndForget: orderly?.fireAndForget(to: random.pick(["p0", "p1"]), &random)
    case .noise: hostile?.sendNoise(&random)
    case .stopReading:
      // The server sends such a client nothing, and learns late that it has gone: perhaps when it cuts it off.
      let unnoticed = clients.filter { $0.isOrderly && !$0.isOver && $0 !== bystander && $0.lacksCredit }
      let stalled = streams.filter { $0.blocks && machine.waits($0.name) }
      let stalling = unnoticed.filter { client in stalled.contains { client.lacksCredit(for: $0.name) } }
      (random.maybe(stalling) ?? random.maybe(unnoticed) ?? orderly)?.stopReading()
    case .halfClose:
      hostile?.shutDown(random.pick([CInt(SHUT_WR), CInt(SHUT_RD), CInt(SHUT_RDWR)]))
      orderly?.halfClose()
    case .repeatLast: for _ in 0..<random.below(50) { hostile?.repeatLast() }
    case .flood: hostile?.flood(&random)
    case .restart: restart()
    case .kill: kill()
    case .killSoon:
      Report.shared.say("the process will be killed soon")
      sim_kill_later(UInt32(1 + random.below(60)))
      turn(64)
    case .killInReload:
      sim_kill_later(UInt32(1 + random.below(20)))
      reload(changesPerStream: 4)
    case .losePower: losePower()
    case .reload: reload()
    case .setClock: setClock()
    case .settle: settle()
    case .faults:
      guard profile.hasFaults else { return }
      sim_faults_on = sim_faults_on == 0 ? 1 : 0
      Report.shared.say("faults are \(sim_faults_on == 0 ? "off" : "on")")
    }
  }

  /// Seldom one that does not read: the server learns of that when it sends it something.
  var orderly: Client? {
    let mayBeDeaf = random.chance(20)
    return random.maybe(
      clients.filter { $0.isOrderly && !$0.isOver && $0 !== bystander && (mayBeDeaf || !$0.hasStoppedReading) })
  }
  private var hostile: HostileClient? { random.maybe(clients.compactMap { $0 as? HostileClient }) }
  /// Whether a subscription is to begin with the state: nearly always of a stream that has one.
  func isFromState(_ stream: String, _ random: inout Random) -> Bool {
    random.chance(specification(of: stream)?.keys == nil ? 1 : profile.states)
  }
  private func someStream() -> String {
    if random.chance(profile.systemStreams) { return random.pick(Self.systemStreams) }
    if profile.derivedRequests > 0, random.chance(profile.derivedRequests) { return random.pick(derivedStreams).name }
    if profile.madeStreams > 0, random.chance(profile.madeStreams) { return someMade().name }
    let streams = configuredStreams
    let keyed = random.chance(profile.slowStates) ? streams.filter { $0.keys != nil } : []
    return random.pick(keyed.isEmpty ? streams : keyed).name
  }

  func turn(_ count: Int) {
    for _ in 0..<count {
      if turns % 4 == 0 { _ = serveUpstream() }
      if sim_run_one() != 0 {
        turns += 1
      } else if !serveUpstream() {
        return
      }
    }
  }

  private func serveUpstream() -> Bool {
    let hasActed = origin?.serve(&random, isFaulty: sim_faults_on != 0) ?? false
    return model?.serve(&random, isFaulty: sim_faults_on != 0) ?? false || hasActed
  }

  /// Lets time pass, in steps that clients and upstreams then see.
  private func pass(_ nanoseconds: UInt64) {
    Report.shared.say("\(nanoseconds / 1000) µs pass")
    // No loop stands still for so long, and no client leaves a connection half open.
    for _ in 0..<2 {
      turn(64)
      for client in clients { client.keepAlive() }
    }
    turn(64)
    let end = sim_now() + nanoseconds
    for _ in 0..<200 {
      let next = sim_next_deadline()
      guard next < end else { break }
      if next > sim_now() { sim_pass(next - sim_now()) }
      turn(8)
      for client in clients { client.keepAlive() }
    }
    if end > sim_now() { sim_pass(end - sim_now()) }
  }

  // MARK: Clients

  /// What a client speaks.
  enum ClientProtocol { case rsocket, webSocket, http, hostile }

  @discardableResult
  func connect(as peer: Peer, _ spoken: ClientProtocol) -> Client? {
    let isRemote = if case .address = peer { true } else { false }
    let descriptor = sim_connect(listenerNames[isRemote ? 1 : 0], peer.text, random.chance(30) ? 4608 : 0)
    guard descriptor >= 0 else { return nil }
    clientCount += 1
    let client: Client =
      switch spoken {
      case .rsocket: RSocketClient(clientCount, peer, descriptor, self)
      case .webSocket: WebSocketClient(clientCount, peer, descriptor, self)
      case .http: HTTPClient(clientCount, peer, descriptor, self)
      case .hostile: HostileClient(clientCount, peer, descriptor, self)
      }
    Report.shared.say("\(client.name) connects: \(spoken)")
    Report.shared.count("connections: \(spoken)")
    clients.append(client)
    return client
  }

  /// A client makes, reads or deletes an answer.
  /// - Returns: false: there is no connection for it.
  @discardableResult func asks(as peer: Peer, _ action: AskingClient.Action) -> Bool {
    let descriptor = sim_connect(listenerNames[0], peer.text, 0)
    guard descriptor >= 0 else { return false }
    clientCount += 1
    clients.append(AskingClient(clientCount, peer, descriptor, self, action))
    return true
  }

  /// The connection of an event stream over HTTP has ended.
  func remember(_ position: EventResponse.Position) { positions = positions.suffix(3) + [position] }

  /// A pattern's request or connection has ended.
  func remember(_ position: PatternReading.Position) { patternPositions = patternPositions.suffix(3) + [position] }

  private func readPattern() {
    if !patternPositions.isEmpty, random.chance(50) { return resumePattern() }
    // Answers have rules of their own.
    let text = random.pick(["t/*", "t/*", answers == nil ? "*" : "t/*", "*/a", "s*", "u/*"])
    if random.chance(50), let client = random.maybe(clients.compactMap { $0 as? RSocketClient }), client !== bystander,
      !client.isOver, !client.hasStoppedReading
    {
      return client.read(text, &random)
    }
    guard clients.count < profile.clients + 4 else { return }
    (connect(as: .random(&random), random.pick([.rsocket, .webSocket])) as? RSocketClient)?.read(text, &random)
  }

  private func resumePattern() {
    guard clients.count < profile.clients + 4 else { return }
    let position = patternPositions.remove(at: random.below(patternPositions.count))
    (connect(as: position.peer, .rsocket) as? RSocketClient)?.read(position.text, continuing: position, &random)
  }

  /// Continues an event stream over HTTP on another connection.
  private func resume() {
    let position = positions.remove(at: random.below(positions.count))
    (connect(as: position.peer, .http) as? HTTPClient)?.resume(position, &random)
  }

  func connectionFailed(_ client: Client, _ code: ErrorCode, _ message: String) {
    let isExpected =
      connectionsMayEnd || client.isLeaving || code == .connectionClose
      || code == .rejectedSetup && message.contains("connections already")
    require(isExpected, "connections stay", "\(client.name) got \(code): \(message)")
  }

  func connectionEnded(_ client: Client) {
    Report.shared.say("\(client.name) is at its connection's end")
    if client === bystander { (bystander, owed) = (nil, []) }
    guard client.isOrderly, !client.isLeaving, !client.mayEnd, !connectionsMayEnd else { return }
    // A process that was killed in the middle of a step still closes its descriptors.
    require(
      mayEndNow || sim_is_dead() != 0, "connections stay",
      "\(client.name) has lost its connection, after \(client.unjudged)")
  }

  func received(_ id: UInt64, of stream: String, by client: Client) {
    if client === bystander { owed.removeAll { $0.id <= id } }
  }

  // MARK: Upstreams and publishers

  /// - Parameter name: the stream that has events; nil: any.
  func emit(_ name: String? = nil) {
    let candidates = streams.filter {
      (name ?? $0.name) == $0.name && ($0.kind.isHTTP || (machine.upstreams[$0.name]?.demand ?? .none) > .none)
    }
    // Slow readers of a state are to be overtaken.
    let keyed = random.chance(profile.slowStates) ? candidates.filter { $0.keys != nil } : []
    guard let stream = random.maybe(keyed.isEmpty ? candidates : keyed) else { return }
    let former = reloading?.former.first { $0.name == stream.name } ?? stream
    let largest = min(stream.largestEvent, former.largestEvent)
    var batch = EventBatch()
    // A stream with keys gets no more than its log has room for: nothing sees the others but its state.
    var room = stream.keys == nil && former.keys == nil ? Int.max : min(stream.bytes, former.bytes) / 2
    let most = room < .max ? min(stream.events, former.events) : .max
    for index in 0..<min(profile.someEventCount(&random), most) where room > 0 {
      let (epoch, number) = sequences[stream.name]!
      sequences[stream.name]!.next += 1
      let size = random.below(random.chance(profile.largeEvents) ? largest : 400)
      let event = Content(stream.name, epoch, number)
        .bytes(
          count: min(size, largest, index == 0 ? .max : room), as: stream.content,
          hasLines: stream.isText && !stream.kind.isHTTP)
      room -= event.count + 64
      if stream.kind.isHTTP { origin?.append(event, to: stream.name) } else { batch.append(event) }
    }
    Report.shared.say("\(stream.name) has events up to \(sequences[stream.name]!.next - 1)")
    guard let upstream = machine.upstreams[stream.name] else { return }
    upstream.send(batch)
    if stream.name == "s0", let bystander,
      let subscription = bystander.subscriptions.values.first(where: {
        $0.stream == "s0" && $0.credit >= Subscription.unlimited && $0.last != nil
      }), let end = machine.end(of: "s0"), end - 1 > subscription.last!
    {
      owed.append((end - 1, turns, sim_now()))
    }
  }

  /// A client has read one event of a state when the service restarts.
  private func holdState() {
    var own = random
    let keyed = streams.filter { $0.isServed && $0.keys != nil && (machine.state(of: $0.name)?.isComplete ?? false) }
    guard own.chance(profile.slowStates), let stream = own.maybe(keyed) else { return }
    guard let client = holder(of: stream) else { return }
    client.hold(stream.name, isFromState: true)
    turn(64)
    client.receive()
  }

  /// A client that may read a stream; nil: there are many clients already.
  func holder(of stream: StreamSpecification) -> RSocketClient? {
    guard clients.count < profile.clients + 4 else { return nil }
    return connect(as: .user(stream.readers?.first ?? StreamSpecification.users[2]), .rsocket) as? RSocketClient
  }

  /// Much is under way in a stream when the service restarts: events that sockets do not take, values without room,
  /// requests of which a part has arrived.
  func rush() {
    holdState()
    let stream = profile.madeStreams > 0 && random.chance(50) ? someMade() : random.pick(configuredStreams)
    for _ in 0..<random.pick(profile.rushes) where sim_is_dead() == 0 {
      sendLimit = random.pick([1, 20, 200, 2000, .max])
      var own = Random(random.next())
      switch random.below(8) {
      case 0: orderly?.subscribe(to: stream.name, &own)
      case 1: orderly?.ask(stream.name)
      case 2: publish(to: stream.isPublished ? stream.name : nil)
      case 3: orderly?.sendValues(&own)
      case 4: orderly?.completeChannel(&own)
      case _ where stream.isPublished: publish(to: stream.name)
      default: emit(stream.name)
      }
      sendLimit = .max
      turn(random.pick([1, 4, 12]))
    }
  }

  private func end() {
    let candidates = streams.filter { $0.name != "s0" && machine.upstreams[$0.name]?.isSubscribed == true }
    guard let stream = random.maybe(candidates) else { return }
    Report.shared.say("the source of \(stream.name) ends")
    endedStreams.insert(stream.name)
    for derived in derivedStreams where endedStreams.isSuperset(of: derived.kind.bases) {
      endedStreams.insert(derived.name)
    }
    machine.upstreams[stream.name]?.finish(random.chance(50) ? .finished : .failure(StreamFailure("it is over")))
  }

  /// - Parameter name: of a stream to which clients publish; nil: any.
  func publish(to name: String? = nil) {
    // Often to one without room, where values wait.
    let full = ["p0", "p1"].filter { machine.waits($0) }
    let made = name == nil && profile.madeStreams > 0 && random.chance(profile.madeStreams) ? someMade().name : nil
    let stream = name ?? made ?? random.pick(full.isEmpty || random.chance(50) ? ["p0", "p1"] : full)
    // Most clients over HTTP read a response that does not end, and publish nothing meanwhile.
    if profile.someProtocol(&random) == .http, random.chance(50), clients.count < profile.clients + 4 {
      connect(as: .random(&random), .http)?.publish(to: stream, nil, &random)
      return
    }
    let idle = publishers.filter { $0.connection == nil && !$0.isOfOneRun }
    // A named one speaks RSocket.
    if random.chance(profile.prefersHTTP ? 10 : 50), let publisher = random.maybe(idle) {
      let client =
        clients.first { $0 is RSocketClient && $0.peer == publisher.peer } ?? connect(as: publisher.peer, .rsocket)
      client?.publish(to: publisher.stream, publisher, &random)
    } else if random.chance(50), let client = orderly {
      clientCount += 1
      let publisher = NamedPublisher("r\(clientCount)", client.peer, stream: stream, isOfOneRun: true)
      publishers.append(publisher)
      client.publish(to: stream, publisher, &random)
      if publisher.connection == nil { forget(publisher) }
    } else {
      orderly?.publish(to: stream, nil, &random)
    }
  }
}
