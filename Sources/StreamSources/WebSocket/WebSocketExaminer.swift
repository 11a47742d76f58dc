import Events
import StreamRuntime

/// The process in which jq examines the messages of one WebSocket. Confined to the source thread.
final class WebSocketExaminer: JQProcess.Owner {
  private let transform: JQTransform
  private let context: SourceContext
  private let completed: (Result<[WebSocketConversation.Verdict], SourceFailure>) -> Void
  private let report: (SourceReport) -> Void
  private var process: JQProcess?
  /// Whether its program is compiled.
  private var isReady = false
  /// Whether it has examined a message.
  private var hasAnswered = false
  private var questions = EventBatch()[...]
  private var verdicts: [WebSocketConversation.Verdict] = []

  /// - Parameters:
  ///   - completed: called with the verdicts on all messages of one call of `examine`, never within it. Not called any
  ///     more after a failure, or after `end`.
  ///   - report: called if the process has more rights than it should.
  init(
    _ transform: JQTransform, in context: SourceContext, report: @escaping (SourceReport) -> Void,
    completed: @escaping (Result<[WebSocketConversation.Verdict], SourceFailure>) -> Void
  ) throws(SourceFailure) {
    (self.transform, self.context, self.completed, self.report) = (transform, context, completed, report)
    do throws(SystemError) { try start() } catch { throw SourceFailure("jq cannot be started: \(error)") }
  }

  /// Examines messages; only after the last ones are.
  func examine(_ messages: EventBatch) {
    questions = EventBatch(messages.map(WebSocketConversation.question))[...]
    verdicts = []
    process?.send(questions)
  }

  /// Ends the process.
  func end() {
    process?.end()
    process = nil
  }

  private func start() throws(SystemError) {
    (isReady, hasAnswered) = (false, false)
    let process = try JQProcess(
      executable: context.executable, timePerEvent: JQWorker.timePerEvent, name: context.name ?? "websocket",
      transform: transform, on: context.thread, owner: self)
    self.process = process
    process.send(questions)
  }

  private func fail(_ reason: String) {
    end()
    completed(.failure(SourceFailure(reason)))
  }

  // MARK: JQProcess.Owner

  func processAnswered(_ answer: JQAnswer) {
    guard isReady else {
      if let mistake = answer.failure { return fail("the programs of send and answer: \(mistake)") }
      isReady = true
      return JQProcess.unconfinedReport(answer).map(report) ?? ()
    }
    hasAnswered = true
    guard !questions.isEmpty else { return }
    do throws(SourceFailure) {
      verdicts.append(try WebSocketConversation.Verdict(answer))
    } catch {
      return fail(error.sentence)
    }
    questions = questions.dropFirst()
    guard questions.isEmpty else { return }
    completed(.success(verdicts))
  }

  /// As for a pipeline, a process that has examined other messages may have filled its memory with them: a new one
  /// continues.
  func processEnded(_ reason: String, isForMemory: Bool) {
    process = nil
    guard isForMemory, hasAnswered else { return fail("jq examines messages for send and answer: \(reason)") }
    do throws(SystemError) { try start() } catch { fail("jq cannot be started: \(error)") }
  }
}
