import CSimulation

// What becomes of the daemon's process and its configuration, and what each of that may cost.

extension World {
  func startMachine() {
    for attempt in 0..<6 {
      let former = sim_faults_on
      if attempt >= 2 { sim_faults_on = 0 }
      defer { sim_faults_on = former }
      machine = Machine(self)
      do {
        try machine.start()
        if sim_is_dead() == 0 { break }
      } catch {
        Report.shared.say("the process ends before it serves: \(error)")
      }
      Report.shared.count("starts that failed")
      machine.end()
      connectionsAreGone()
      require(attempt < 5, "progress", "no process gets as far as serving")
    }
    madeAllowed = Dictionary(uniqueKeysWithValues: machine.templates.map { ($0.prefix, $0.count) })
    for client in clients { client.review() }
  }

  /// Connections are gone, but nothing else that was kept.
  private func connectionsAreGone() {
    mayEndNow = true
    // What is left, and then the end.
    for client in clients + clients { client.receive() }
    clients.removeAll { $0.isOver }
    mayEndNow = false
  }

  private func change(_ percent: Int) {
    guard random.chance(percent) else { return }
    let former = streams
    for index in 1..<configuredStreams.count where random.chance(40) { streams[index].change(&random) }
    changeTemplates()
    noteChanges(from: former)
  }

  /// The streams of templates follow the others.
  private func changeTemplates() {
    guard !templates.isEmpty else { return }
    for index in templates.indices where random.chance(40) {
      if random.chance(12) { templates[index].isServed.toggle() } else { templates[index].change(&random) }
    }
    streams = configuredStreams + templates.flatMap(\.streams)
  }

  /// What a change of configuration may cost.
  private func noteChanges(from former: [StreamSpecification]) {
    for (old, new) in zip(former, streams) {
      if new.age != nil { truths[new.name]?.mayRepeat = true }
      guard old != new else { continue }
      Report.shared.say("\(new.name) is now \(new)")
      if old.keys != new.keys || old.maxKeys != new.maxKeys || old.stateBytes != new.stateBytes || old.keep != new.keep
        || old.isServed != new.isServed || old.events != new.events || old.bytes != new.bytes
      {
        // A log with another buffer does not get the tombstones of one that no reader has begun to read.
        truths[new.name]?.stateRisks += 1
      }
      if old.isServed != new.isServed || new.keep == .no { truths[new.name]?.isKept = false }
      if new.largestEvent < old.largestEvent { truths[new.name]?.mayLeaveOut = true }
      if old.isServed != new.isServed || old.keep != new.keep && !new.kind.bases.isEmpty {
        truths[new.name]?.forgetMakers()
      }
      truths[new.name]?.limitEvents(to: new.largestEvent)
      if new.largestEvent != old.largestEvent || old.isServed != new.isServed || old.blocks != new.blocks
        || old.keep != new.keep
      {
        newEpoch(new)
      }
      if new.events < old.events || new.bytes < old.bytes || old.blocks != new.blocks || old.isServed != new.isServed {
        truths[new.name]?.losses += 1
      }
    }
  }

  /// What an upstream has sent may not arrive, except where it can be asked for it again.
  private func newEpoch(_ stream: StreamSpecification) {
    guard !stream.kind.resumes else { return }
    sequences[stream.name]!.epoch += 1
    truths[stream.name]?.forgetMakers()
    if !stream.isPublished { truths[stream.name]?.epoch = sequences[stream.name]!.epoch }
  }

  func restart() {
    rush()
    changes += 1
    Report.shared.say("the service restarts")
    Report.shared.count("restarts")
    finishReload()
    guard sim_is_dead() == 0 else { return restartAfterDeath() }
    machine.stop(handingOver: true)
    guard sim_is_dead() == 0 else { return restartAfterDeath() }
    machine.end()
    logsAreGone()
    // Connections for which there was no room.
    let allowed = connectionsMayEnd
    connectionsMayEnd = true
    for client in clients where client.isEager { client.receive() }
    connectionsMayEnd = allowed
    change(profile.changedRestarts)
    logsAreGone()
    for client in clients { client.noteHandover() }
    startMachine()
    if random.chance(10) { restart() }
  }

  /// Logs that begin anew, or may: nothing keeps them, or what does has failed.
  private func logsAreGone() {
    for stream in streams where stream.keep == .no || Profile.hasStorageFaults || sim_store_limit < 64 {
      truths[stream.name]?.losses += 1
      truths[stream.name]?.forgetMakers()
      truths[stream.name]?.isKept = false
      truths[stream.name]?.stateRisks += 1
    }
  }

  func kill() {
    Report.shared.say("the process is killed")
    sim_kill()
    restartAfterDeath()
  }

  func restartAfterDeath() {
    Report.shared.count("kills")
    if sim_ids_may_decrease != 0 {
      Report.shared.count("kills after which ids may decrease, as the journal says: the end of the run")
      Report.shared.end()
    }
    changes += 1
    // A batch has its checkpoint with its last event: what waits for room in such a stream is lost, or comes again.
    // A derived stream reads that again.
    for stream in streams + (reloading?.former ?? []) where stream.blocks && stream.kind.bases.isEmpty {
      truths[stream.name]?.forgetMakers()
    }
    finishReload()
    machine.end()
    connectionsAreGone()
    for stream in streams { newEpoch(stream) }
    logsAreGone()
    change(30)
    logsAreGone()
    // It may have handed connections over before it was killed.
    for client in clients { client.noteHandover() }
    startMachine()
  }

  func losePower() {
    // A disk that takes no ids forgets with the power how far they were.
    guard !Profile.hasDiskFaults else { return }
    Report.shared.say("the machine loses power")
    Report.shared.count("losses of power")
    sim_kill()
    finishReload()
    machine.end()
    connectionsAreGone()
    sim_lose_power()
    sim_store_clear()
    boot += 1
    for truth in truths.values { truth.losePower() }
    for publisher in publishers { publisher.losePower() }
    for stream in streams { newEpoch(stream) }
    startMachine()
    // An event may be on the disk without its checkpoint: it may come again.
    for stream in streams where stream.kind.isHTTP { truths[stream.name]?.forgetMakers() }
  }

  func reload(changesPerStream: Int = 1) {
    guard reloading == nil else { return }
    let (former, formerTemplates) = (streams, templates)
    var replaced: Set<String> = []
    for index in 1..<configuredStreams.count where random.chance(40) {
      if random.chance(12) {
        toggle(index)
      } else {
        for _ in 0..<changesPerStream { streams[index].change(&random) }
        if !streams[index].isPublished, random.chance(20) { replaced.insert(streams[index].name) }
      }
    }
    changeTemplates()
    let count = zip(former, streams).count { $0 != $1 }
    guard count > 0 || templates != formerTemplates else { return }
    Report.shared.say("the configuration is reloaded")
    Report.shared.count("reloads")
    changes += 1
    Report.shared.count("reloads: streams changed", count)
    reloading = (former, formerTemplates, replaced)
    noteReload()
    machine.beginReload(
      from: (former.filter { $0.template == nil }, formerTemplates), to: (configuredStreams, templates),
      replacing: replaced)
    if random.chance(50) { finishReload() }
  }

  /// A stream is served only with all of its bases.
  private func toggle(_ index: Int) {
    streams[index].isServed.toggle()
    let (toggled, isServed) = (streams[index], streams[index].isServed)
    for other in streams.indices {
      let follows =
        isServed ? toggled.kind.bases.contains(streams[other].name) : streams[other].kind.bases.contains(toggled.name)
      if follows { streams[other].isServed = isServed }
    }
  }

  /// What a reload may cost, from its beginning to its end.
  private func noteReload() {
    guard let (former, _, replaced) = reloading else { return }
    noteChanges(from: former)
    for stream in streams where replaced.contains(stream.name) { newEpoch(stream) }
  }

  /// Waits for its end, if one is under way.
  func finishReload() {
    guard let (former, formerTemplates, _) = reloading else { return }
    machine.finishReload()
    if machine.hasFailedToReload, sim_is_dead() == 0 {
      Report.shared.say("the reload has failed")
      Report.shared.count("reloads that failed")
      let attempted = streams
      (streams, templates) = (former, formerTemplates)
      noteChanges(from: attempted)
    } else {
      noteReload()
    }
    reloading = nil
    for client in clients { client.review() }
    guard sim_is_dead() != 0 else { return }
    // A log that nothing kept before may not be kept yet.
    for (old, new) in zip(former, streams) where old != new && old.keep == .no {
      truths[new.name]?.isKept = false
      truths[new.name]?.forgetMakers()
    }
  }

  func setClock() {
    let spans: [Int64] = [1_000_000_000, 3600_000_000_000, 86_400_000_000_000 * 30]
    let span = random.pick(spans) * (profile.setsClockBack && random.chance(60) ? -1 : 1)
    Report.shared.say("the wall clock is set \(span < 0 ? "back" : "forward") by \(abs(span) / 1_000_000_000) s")
    Report.shared.count("clock set")
    if span < 0 { wasSetBack = true }
    sim_set_wall(span)
  }
}
