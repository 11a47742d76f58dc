import Reactive
import StreamProtocol
import StreamRuntime
import Synchronization

// Streams of templates: making, forgetting, deleting. All of it is work of the maker's queue, one at a time, so that a name
// that is being forgotten is made again only afterwards. Event loops never wait for the queue; it waits for a turn of each
// loop. While it is idle, a loop makes a stream itself if that needs no wait.

/// Requests that wait for the maker's queue. Users take turns, so that no user waits for all requests of another one.
struct MakingRequests {
  typealias Work = @Sendable () -> Void

  private var waiting: [ClientUser: Fifo<Work>] = [:]
  var isEmpty: Bool { waiting.isEmpty }
  private var round = UserRound<ClientUser>()

  mutating func append(_ work: @escaping Work, of user: ClientUser) {
    if waiting[user] == nil { round.append(user, user.standing) }
    waiting[user, default: Fifo()].append(work)
  }

  mutating func popFirst() -> Work? {
    guard let user = round.popFirst(), let work = waiting[user]?.popFirst() else { return nil }
    if waiting[user]?.isEmpty == true { waiting[user] = nil } else { round.append(user, user.standing) }
    return work
  }
}

/// The state of the making of streams: the maker, its waiting requests, and which streams are made of which.
struct Making {
  let maker: any StreamMaker
  /// The derived streams of each base, by name: a base is in use while there are any.
  var dependents: [String: Set<String>] = [:]
  /// The bases of each derived stream.
  var bases: [String: [String]] = [:]
  /// The time for which the timer that forgets is set; nil: there is none.
  var timer: UInt64?
  var requests = MakingRequests()
  /// The requests that are not answered yet: those that wait, and the one at work.
  var unansweredCount = 0
  /// Whether streams will be forgotten because memory is short.
  var isMakingRoom = false
  /// Why a base of the stream that is being made cannot be made.
  var baseFailure: RequestFailure?
}

/// What has become of a client's wish for a stream.
struct MakingOutcome: Sendable {
  /// nil: the stream exists.
  var failure: RequestFailure?
  /// Whether it was made.
  var isNew = false
  /// The stream is not forgotten before this is released.
  var use: StreamUse?
}

extension StreamServer {
  /// The most streams that are forgotten together.
  private static let forgottenTogether = 256
  /// The streams that a request tries to forget in vain, before it is refused.
  private static let mostFailures = 4

  /// Serves these templates from now on, in place of the former ones. Called before clients are served, and then on the
  /// maker's queue. A stream that another template fits now belongs to that one. The caller changes the streams whose
  /// template has changed, and removes those that no template fits.
  /// - Parameter configured: names that are not those of templates, although one fits.
  package func setTemplates(
    _ templates: [StreamTemplate], besides configured: Set<String> = [], maker: some StreamMaker
  ) {
    let former = self.templates.all
    let known = Dictionary(uniqueKeysWithValues: former.map { ($0.name.text, $0) })
    noteEnds()
    self.templates.replace(
      with: templates.map { terms in
        guard let known = known[terms.name.text] else { return ServedTemplate(terms) }
        known.change(to: terms)
        return known
      })
    for template in former {
      for name in template.streamNames {
        let present = configured.contains(name) ? nil : self.templates.match(name)?.template
        guard present !== template else { continue }
        let owner = template.owner(of: name)
        template.withStreams { $0.remove(name) }
        present?.withStreams { $0.add(name, by: owner, at: EventLoop.monotonicNow()) }
        if present == nil { setBases([], of: name) }
      }
    }
    retired.withLock { $0.keep(Set(templates.map(\.name.text))) }
    for template in former where self.templates.all.allSatisfy({ $0 !== template }) {
      systemStreams.remove(template.name.text)
    }
    for terms in templates {
      let access = StreamAccess(readableBy: [], visibleTo: terms.shownTo.rules)
      if systemStreams.add(access, of: terms.name.text) { changeViews() }
    }
    making.withLock { making in if making == nil { making = Making(maker: maker) } }
    noteEndsFromNowOn(on: maker.queue)
    scheduleForgetting()
  }

  /// Notes the uses that have ended, and which answers wait for a reader.
  private func noteEnds() {
    let answers = templates.noteEnds(streams)
    guard !answers.isEmpty, let maker = presentMaker else { return }
    for stream in answers { maker.answerWaits(stream.name, stream.waitsForReader) }
  }

  /// The end of a use sets the timer, a little later, for all uses that end meanwhile.
  private func noteEndsFromNowOn(on queue: WorkQueue) {
    let times = templates.all.compactMap(\.terms.forgetTime)
    let pause = min(times.min() ?? .seconds(1), .seconds(16)) / 16
    templates.ends.notify { [weak self] in
      queue.async(after: pause) { [weak self] in
        guard let self else { return }
        noteEnds()
        scheduleForgetting()
      }
    }
  }

  /// The streams of templates, by name, each with the text of its template's name. On the maker's queue.
  package var madeStreams: [String: String] {
    templates.all.reduce(into: [:]) { names, template in
      for name in template.streamNames { names[name] = template.name.text }
    }
  }

  /// Makes a stream, unless it exists or no template fits its name. On the maker's queue.
  ///
  /// - Parameter maker: who counts it, within the limits; nil: the limits do not apply.
  /// - Throws: with a sentence for the client.
  package func makeStream(_ name: String, for maker: StreamOwner?) throws(StreamFailure) {
    guard streams[name] == nil, let match = templates.match(name) else { return }
    guard let maker else { return try add(name, match, by: nil) }
    guard let failure = make(name, match, for: maker.user) else { return }
    making.withLock { $0?.baseFailure = failure }
    throw StreamFailure(failure.sentence)
  }

  /// Makes a stream of a former process, whatever the limits are. On the maker's queue.
  package func restoreStream(_ name: String, of maker: StreamOwner?) throws(StreamFailure) {
    guard streams[name] == nil, let match = templates.match(name) else { return }
    try add(name, match, by: maker?.user)
  }

  /// The stream is derived of others from now on, which are in use while it exists. On the maker's queue.
  package func setBases(_ names: [String], of stream: String) {
    let former = making.withLock { making -> [String] in
      let former = making?.bases[stream] ?? []
      for base in former {
        making?.dependents[base]?.remove(stream)
        if making?.dependents[base]?.isEmpty == true { making?.dependents[base] = nil }
      }
      making?.bases[stream] = names.isEmpty ? nil : names
      for base in names { making?.dependents[base, default: []].insert(stream) }
      return former
    }
    for base in former { streams[base]?.use?.end() }
  }

  // MARK: Making

  /// Who makes streams; nil: there are no templates.
  var presentMaker: (any StreamMaker)? { making.withLock { $0?.maker } }

  /// Performs a client's request on the queue, in the turn of its user.
  /// - Parameter work: with true, if the server ends, and nothing is made or forgotten any more.
  func perform(for user: ClientUser, _ work: @escaping @Sendable (_ isEnding: Bool) -> Void) {
    let queue = making.withLock { making in
      making?.requests.append({ [self] in work(isEnding.load(ordering: .acquiring)) }, of: user)
      making?.unansweredCount += 1
      return making?.maker.queue
    }
    guard let queue else { return work(true) }
    queue.async { [self] in
      making.withLock { $0?.requests.popFirst() }?()
      making.withLock { $0?.unansweredCount -= 1 }
    }
  }

  /// The requests of clients that wait for the maker's queue, and the one at work on it.
  var waitingMakingCount: Int { making.withLock { $0?.unansweredCount ?? 0 } }

  /// Makes a stream for a client, which has the right to. From any thread.
  /// - Parameter completed: called once, on any thread.
  func make(
    _ name: String, for user: ClientUser, admits: @escaping @Sendable (StreamTemplate, NameValues) -> RequestFailure?,
    completed: @escaping @Sendable (_ outcome: MakingOutcome) -> Void
  ) {
    perform(for: user) { [self] isEnding in
      guard !isEnding else { return completed(.init(failure: .restarting)) }
      guard let match = templates.match(name) else {
        return completed(.init(failure: streams[name] == nil ? .noStream(name) : nil))
      }
      if let failure = admits(match.template.terms, match.values) { return completed(.init(failure: failure)) }
      let isNew = streams[name] == nil
      if isNew, let failure = make(name, match, for: user) { return completed(.init(failure: failure)) }
      let use = streams[name]?.use
      use?.hold()
      completed(.init(isNew: isNew, use: use))
    }
  }

  /// Makes a stream for a client now, if nobody waits for the queue, and nothing has to be forgotten or waited for.
  /// From any thread.
  ///
  /// - Returns: the new stream, which is held; nil: there was no effect, and the reason is unknown.
  func makeAtOnce(
    _ name: String, for user: ClientUser, admits: (StreamTemplate, NameValues) -> RequestFailure?
  ) -> StreamUse? {
    let (waiting, maker) = making.withLock { ($0?.requests.isEmpty == false, $0?.maker) }
    guard !waiting, let maker, let match = templates.match(name), !match.template.terms.accessWaits else { return nil }
    let made = maker.queue.syncIfIdle { () -> StreamUse? in
      guard !isEnding.load(ordering: .acquiring), maker.makesAtOnce(match.template.name), streams[name] == nil,
        templates.match(name)?.template === match.template, admits(match.template.terms, match.values) == nil,
        match.template.withStreams({ $0.hasRoom(for: user) }), (try? add(name, match, by: user)) != nil
      else { return nil }
      let use = streams[name]?.use
      use?.hold()
      return use
    }
    return made ?? nil
  }

  func make(_ name: String, _ match: ServedTemplates.Match, for user: ClientUser) -> RequestFailure? {
    do throws(RequestFailure) {
      try makeRoom(in: match.template, for: user)
    } catch {
      match.template.refusedCount.add(1, ordering: .relaxed)
      if match.template.warns(at: EventLoop.monotonicNow()) {
        report(.template(match.template.name.text, .full(reason: error.sentence)))
      }
      return error
    }
    do throws(StreamFailure) {
      try add(name, match, by: user)
      return nil
    } catch {
      return making.withLock { $0?.baseFailure.take() } ?? .init(.failed, error.message)
    }
  }

  private func makeRoom(in template: ServedTemplate, for user: ClientUser) throws(RequestFailure) {
    var failures = 0
    while true {
      // Loops that have ended take no turns, so that nothing is forgotten any more.
      guard !isEnding.load(ordering: .acquiring) else { throw .restarting }
      noteEnds()
      switch template.withStreams({ $0.admit(user, use: use) }) {
      case .admitted:
        guard lacksMemory else { return }
        guard makesMemory() else { throw .noMemoryForStreams }
      case .forgets(let name):
        if forget([name], of: template) { continue }
        // Streams that are in use again, or that a stuck loop may use.
        failures += 1
        guard failures < Self.mostFailures else { throw .tooManyStreams(.full, of: template.terms, for: user) }
      case .refused(let refusal): throw .tooManyStreams(refusal, of: template.terms, for: user)
      }
    }
  }

  private var lacksMemory: Bool { making.withLock { $0?.maker }?.hasMemory == false }

  /// Forgets unused streams until there is memory: one, then twice as many each time, of the template that has the longest
  /// unused one.
  /// - Returns: false if all streams of all templates are in use.
  private func makesMemory() -> Bool {
    var (count, failures) = (1, 0)
    while lacksMemory, !isEnding.load(ordering: .acquiring) {
      noteEnds()
      let unused = templates.all.compactMap { template in
        template.withStreams { $0.timeOfLongestUnused(use: use) }.map { (template, since: $0) }
      }
      guard let (template, _) = unused.min(by: { $0.since < $1.since }) else { return false }
      if forget(template.withStreams { $0.longestUnused(atMost: count, use: use) }, of: template) {
        count = min(2 * count, Self.forgottenTogether)
      } else {
        failures += 1
        guard failures < Self.mostFailures else { return false }
      }
    }
    return true
  }

  /// A stream needs more memory than there is: unused streams are forgotten until there is room again. Thread-safe; does
  /// not wait.
  package func noteLackOfMemory() {
    let maker = making.withLock { making -> (any StreamMaker)? in
      guard making?.isMakingRoom == false else { return nil }
      making?.isMakingRoom = true
      return making?.maker
    }
    maker?.queue.async { [weak self] in
      guard let self else { return }
      making.withLock { $0?.isMakingRoom = false }
      _ = makesMemory()
    }
  }

  private func add(_ name: String, _ match: ServedTemplates.Match, by owner: ClientUser?) throws(StreamFailure) {
    guard let maker = making.withLock({ $0?.maker }) else { return }
    let template = match.template
    do throws(StreamFailure) {
      let bases = try maker.make(name, of: template.name, match.values, for: owner.map { StreamOwner(user: $0) })
      template.withStreams { $0.add(name, by: owner, at: EventLoop.monotonicNow()) }
      setBases(bases, of: name)
      if let stream = streams[name], stream.configuration.isAnswer {
        let watcher = AnswerWatcher(stream, of: self)
        stream.log.attach(watcher)
        watcher.logDidChange()
      }
    } catch {
      setBases([], of: name)
      throw error
    }
    template.madeCount.add(1, ordering: .relaxed)
    if wantsDetails() { report(.template(template.name.text, .made(stream: name))) }
    scheduleForgetting(of: [template])
  }

  /// Whether a stream of a template is in use. On the maker's queue.
  private func use(of name: String) -> MadeStreams.Use {
    guard making.withLock({ $0?.dependents[name]?.isEmpty != false }) else { return .inUse }
    guard let stream = streams[name], let use = stream.use else { return .unused(since: 0) }
    return stream.isInUse ? .inUse : .unused(since: use.time)
  }

  // MARK: Forgetting

  /// Forgets streams that are not in use. A client that asks for one meanwhile waits for the queue, and makes it again.
  /// - Returns: whether any was forgotten.
  @discardableResult private func forget(_ names: [String], of template: ServedTemplate) -> Bool {
    let removed = remove(names)
    // A loop that has found one of them before has begun to use it after this.
    let isCertain = awaitTurns()
    let used = removed.filter { stream in
      !isCertain || stream.isInUse || making.withLock { $0?.dependents[stream.name]?.isEmpty == false }
    }
    putBack(used)
    // If a loop is stuck, none of them need be in use, and no end of a use would list them again.
    template.withStreams { made in for stream in used { made.release(stream.name, at: EventLoop.monotonicNow()) } }
    let isUsed = Set(used.map(\.name))
    let gone = removed.filter { !isUsed.contains($0.name) }
    end(gone)
    retire(gone)
    release(names.filter { !isUsed.contains($0) }, of: template)
    return !gone.isEmpty
  }

  /// Releases what belongs to streams that have ended.
  private func release(_ names: [String], of template: ServedTemplate) {
    guard !names.isEmpty, let maker = making.withLock({ $0?.maker }) else { return }
    for name in names {
      setBases([], of: name)
      systemStreams.remove(name)
      if wantsDetails() { report(.template(template.name.text, .forgotten(stream: name))) }
    }
    template.withStreams { made in for name in names { made.remove(name) } }
    template.forgottenCount.add(UInt64(names.count), ordering: .relaxed)
    maker.forget(names)
  }

  /// Sets the timer for the next stream whose time without use is over.
  /// - Parameter changed: the templates whose streams have changed; nil: all may have.
  private func scheduleForgetting(of changed: [ServedTemplate]? = nil) {
    let due = (changed ?? templates.all).compactMap { $0.withStreams { $0.nextDue } }.min()
    guard let due else { return }
    let maker = making.withLock { making -> (any StreamMaker)? in
      guard due < making?.timer ?? .max else { return nil }
      making?.timer = due
      return making?.maker
    }
    guard let maker else { return }
    let now = EventLoop.monotonicNow()
    maker.queue.async(after: .nanoseconds(Int64(clamping: due - min(due, now)))) { [weak self] in
      self?.forgetDue(at: due)
    }
  }

  private func forgetDue(at time: UInt64) {
    let isLate = making.withLock { making -> Bool in
      guard making?.timer == time else { return true }
      making?.timer = nil
      return false
    }
    // Another timer was set for an earlier time, and has looked at all.
    guard !isLate, !isEnding.load(ordering: .acquiring) else { return }
    noteEnds()
    for template in templates.all {
      let names = template.withStreams {
        $0.due(at: EventLoop.monotonicNow(), atMost: Self.forgottenTogether, use: use)
      }
      if !names.isEmpty { forget(names, of: template) }
    }
    scheduleForgetting()
  }

  // MARK: Deleting

  /// Removes a stream of a template, and ends its requests. From any thread.
  ///
  /// - Parameters:
  ///   - user: who asks.
  ///   - admits: nil: the client has the right to.
  ///   - completed: called once, on any thread.
  func delete(
    _ name: String, for user: ClientUser,
    admits: @escaping @Sendable (StreamTemplate, NameValues, _ isOwner: Bool) -> RequestFailure?,
    completed: @escaping @Sendable (RequestFailure?) -> Void
  ) {
    guard making.withLock({ $0 != nil }) else { return completed(.noStream(name)) }
    perform(for: user) { [self] isEnding in
      guard !isEnding else { return completed(.restarting) }
      guard let match = templates.match(name) else { return completed(.noStream(name)) }
      let template = match.template
      let isMade = template.has(name)
      if let failure = admits(template.terms, match.values, isMade && template.owner(of: name) == user) {
        return completed(failure)
      }
      guard isMade, let stream = streams[name] else { return completed(.noStream(name)) }
      do throws(RequestFailure) {
        try delete(stream, of: template)
        completed(nil)
      } catch {
        completed(error)
      }
    }
  }

  /// Removes a stream of a template, and ends its requests. On the maker's queue.
  func delete(_ stream: ServedStream, of template: ServedTemplate) throws(RequestFailure) {
    let name = stream.name
    if let dependent = making.withLock({ $0?.dependents[name]?.min() }) {
      throw .init(.noEffect, "\"\(name)\" is in use: \"\(dependent)\" is made of it")
    }
    _ = remove([name])
    end([stream])
    endRequests(to: [stream])
    retire([stream])
    release([name], of: template)
  }
}

/// Who made a stream, for the next process.
package struct StreamOwner: Sendable, Equatable {
  let user: ClientUser
}

extension RequestFailure {
  fileprivate static let noMemoryForStreams = Self(
    .tooManyStreams, "the memory for buffers is used up by streams in use (server.memory)")

  /// A user gets no stream of a template.
  fileprivate static func tooManyStreams(
    _ refusal: MadeStreams.Refusal, of template: StreamTemplate, for user: ClientUser
  ) -> Self {
    let name = template.name.text
    switch refusal {
    case .full:
      return .init(.tooManyStreams, "all \(template.limit) streams of \"\(name)\" are in use (its key streams)")
    case .share(let count, let isOfAllHosts):
      let owners = isOfAllHosts ? "the clients without credentials have" : "\(user) has"
      return .init(
        .tooManyStreams,
        "\(owners) \(count) of \(template.limit) streams of \"\(name)\" in use, as many as are free (its key streams)")
    }
  }
}
