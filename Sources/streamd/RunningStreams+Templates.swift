import StreamRuntime
import StreamServer
import Systemd

// Streams of templates. All of this runs on the queue.

extension RunningStreams: StreamMaker {
  var hasMemory: Bool { logs.smallLogs.hasRoom }

  func makesAtOnce(_ template: NameTemplate) -> Bool {
    queue.assertOnQueue()
    return templates[template.text].map { $0.waitsForNothing && logs.makesAtOnce($0.sample) } ?? false
  }

  func make(
    _ name: String, of template: NameTemplate, _ values: NameValues, for maker: StreamOwner?
  ) throws(StreamFailure) -> [String] {
    queue.assertOnQueue()
    guard let configured = templates[template.text] else {
      throw StreamFailure("\"\(name)\" is made by no template any more")
    }
    var stream: Configuration.Stream
    do {
      stream = try configured.stream(values)
      stream.origin.owner = maker
    } catch {
      // What a value makes of the configuration concerns the operator only, once a minute: clients choose the values.
      let now = EventLoop.monotonicNow()
      if now >= nextFaultReports[template.text] ?? 0 {
        nextFaultReports[template.text] = now + 60_000_000_000
        journal.write(.stateLost, .warning, "not made: \(error)", .stream(name), .template(template.text))
      }
      throw StreamFailure("\"\(name)\" cannot be made: its configuration is not valid with this name")
    }
    server.setBases(stream.bases, of: name)
    for base in stream.bases {
      if let formerMakers {
        try server.restoreStream(base, of: formerMakers[base])
      } else {
        try server.makeStream(base, for: maker)
      }
    }
    do {
      let kept = try logs.log(of: stream)
      // Those of a former process are secured together.
      if formerMakers == nil { logs.secure() }
      if stream.source.section.takesRequests {
        guard answers.restore(name, of: template.text, events: kept.log.firstPosition..<kept.log.endPosition) else {
          throw StreamFailure("there is no request for it any more")
        }
      }
      try add(stream, kept)
      reportLogs()
    } catch {
      // A file may have events of a former process.
      feeds[name] = nil
      logs.forget(name)
      throw StreamFailure("\"\(name)\" cannot be made: \(error)")
    }
    made[name] = configured.copiesSample ? .copy(of: template.text) : .own(stream)
    return stream.bases
  }

  func forget(_ names: [String]) {
    queue.assertOnQueue()
    let holds = names.compactMap { feeds[$0]?.hold }
    for name in names {
      (feeds[name], made[name]) = (nil, nil)
      logs.discard(name)
    }
    answers.remove(names)
    sources.close(holds)
  }

  func store(
    _ request: StreamRequest, for name: String, of template: NameTemplate, by owner: StreamOwner
  ) throws(StreamFailure) {
    queue.assertOnQueue()
    try answers.store(request, for: name, of: template.text, by: owner)
  }

  func relation(of request: StreamRequest, to name: String) -> RequestRelation {
    answers.relation(of: request, to: name)
  }

  func answerEnded(_ name: String, lastID: UInt64) { answers.ended(name, lastID: lastID) }

  func answerWaits(_ name: String, _ waits: Bool) { answers.note(name, waits: waits) }

  /// Reports which logs of made streams are not kept, a little later, for many streams at once.
  private func reportLogs() {
    guard logs.hasReports, !isReportDue, formerMakers == nil else { return }
    isReportDue = true
    queue.async(after: .seconds(10)) { [weak self] in
      self?.isReportDue = false
      self?.logs.finish()
    }
  }

  /// Serves templates from now on.
  /// - Parameter streams: the configured streams, whose names no template has.
  func serve(_ templates: [Configuration.Template], besides streams: [Configuration.Stream]) {
    guard !templates.isEmpty || !self.templates.isEmpty else { return }
    self.templates = Dictionary(uniqueKeysWithValues: templates.map { ($0.name.text, $0) })
    answers.serve(templates)
    copied = Dictionary(
      uniqueKeysWithValues: templates.filter(\.sharesConfiguration).map {
        ($0.name.text, StreamConfiguration($0.sample))
      })
    server.setTemplates(templates.map { StreamTemplate($0) }, besides: Set(streams.map(\.name)), maker: self)
  }

  /// Makes the streams of templates of which a configured one is derived: they exist as long as it does.
  func makeBases(of stream: Configuration.Stream) {
    guard stream.template == nil, !templates.isEmpty else { return }
    for base in stream.bases {
      do throws(StreamFailure) {
        try server.makeStream(base, for: nil)
      } catch {
        journal.write(.stateLost, .warning, error.message, .stream(stream.name))
      }
    }
    server.setBases(stream.bases, of: stream.name)
  }

  /// Makes the streams of a former process again.
  func makeAgain(_ former: [(name: String, maker: StreamOwner?)]) {
    guard !templates.isEmpty else { return }
    let requests = answers.owners
    let known = former + requests.map { ($0.name, $0.owner) }
    let makers = Dictionary(known.compactMap { name, maker in maker.map { (name, $0) } }) { $1 }
    formerMakers = makers
    defer { formerMakers = nil }
    for name in known.map(\.name) + logs.unusedNames {
      do throws(StreamFailure) {
        try server.restoreStream(name, of: makers[name])
      } catch {
        journal.write(.stateLost, .warning, error.message, .stream(name))
      }
    }
    answers.remove(requests.map(\.name).filter { made[$0] == nil })
  }

  /// The streams of templates.
  var madeStreams: [Configuration.Stream] {
    made.compactMap { name, stream in
      switch stream {
      case .own(let stream): stream
      case .copy(let template): templates[template]?.copy(named: name)
      }
    }
  }

  func setMade(_ streams: [Configuration.Stream], of templates: [Configuration.Template]) {
    let copies = Set(templates.filter(\.copiesSample).map(\.name.text))
    made = Dictionary(
      uniqueKeysWithValues: streams.map { stream in
        let template = stream.template ?? ""
        return (stream.name, copies.contains(template) ? .copy(of: template) : .own(stream))
      })
  }

  /// The streams of templates as those of a new configuration make them, without those that it does not make.
  func remade(by difference: ConfigurationDifference) -> [Configuration.Stream] {
    let names = NameTemplates(difference.templates.map(\.name))
    let configured = Set(difference.streams.map(\.name))
    return made.keys.sorted().compactMap { name in
      guard !configured.contains(name), let (index, values) = names.match(name) else { return nil }
      do {
        var stream = try difference.templates[index].stream(values)
        guard !stream.source.section.takesRequests || answers.has(name) else { return nil }
        stream.origin.owner = answers.owner(of: name)
        return stream
      } catch {
        journal.write(.stateLost, .warning, "not served any more: \(error)", .stream(name))
        return nil
      }
    }
  }
}

/// A stream of a template.
enum MadeStream {
  /// The template's sample with another name.
  case copy(of: String)
  /// A stream that depends on its values.
  indirect case own(Configuration.Stream)
}

extension Configuration.Template {
  /// Whether its streams need nothing but memory: values come from clients, and no user has to be looked up.
  fileprivate var waitsForNothing: Bool {
    sample.source.section.isPublished && sample.jq == nil && sample.share == .host && !needsLookUp
  }
}

extension StreamTemplate {
  init(_ template: Configuration.Template) {
    let (sample, isPublished) = (template.sample, template.sample.source.section.isPublished)
    let rules = template.needsLookUp || !template.tokens.isEmpty ? nil : (sample.readRules, sample.writeRules)
    let shownTo = isPublished ? sample.readRules.joined(with: sample.writeRules) : sample.readRules
    self.init(
      template.name, limit: template.streams, forgetTime: template.forget, source: sample.source.kind,
      type: sample.type,
      takesValues: isPublished,
      // Rules with expressions admit any client for some value.
      shownTo: template.needsLookUp ? AccessRules() : shownTo, hasMetricsOfEach: template.metrics == .each,
      accessWaits: template.needsLookUp
    ) { rules ?? template.accessRules($0) }
    takesRequests = sample.source.section.takesRequests
    if takesRequests, !template.needsLookUp { self.shownTo = sample.readRules.joined(with: sample.writeRules) }
  }
}
