import Events
import Reactive

/// A machine whose runs are transfers, which may wait for their host.
protocol TransferMachine: SourceMachine {
  /// The transfer has not begun, for this reason.
  /// - Returns: the report for the operator.
  mutating func waits(_ reason: String) -> SourceReport
  /// Cancels the transfer, which waited for its host, because there is no demand any more. The transfer is due again at
  /// the next demand.
  mutating func withdraw(at now: Duration)
  /// The last request of a former process is not repeated, because the upstream may have acted on it.
  mutating func halt()
  /// Whether the last request is not repeated before a refresh.
  var isHalted: Bool { get }
}

/// A subscription whose events arrive by transfers, one at a time. Subclasses are their handlers.
class HTTPSubscription<Machine: TransferMachine>: SourceSubscription<Machine>, @unchecked Sendable {
  final var transfer: Transfer?
  /// The request and its token, from the time at which it waits for that.
  private final var sent: (request: UpstreamRequest, token: String?, isSecond: Bool)?
  private final var tokens: TokenSource?
  /// Whether the upstream has refused the token, and the request is to be sent with another one.
  private final var isRefused = false

  final let configuration: HTTPConfiguration
  private final let requestDigest: BodyDigest

  init(
    _ configuration: HTTPConfiguration, _ context: SourceContext, _ memory: SourceMemory<Machine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    self.configuration = configuration
    let body = configuration.body.map { ["\(BodyDigest($0.bytes).value)", $0.type] } ?? []
    requestDigest = configuration.fingerprint(["request", configuration.method.rawValue] + body)
    super.init(context, memory, to: down)
  }

  override func begin() {
    if hasMissedEndOfRests { machine?.endRest(at: now) }
    guard let name = context.name, !configuration.isIdempotent, machine?.isHalted == false,
      thread.pauses.isHalted(name, requestDigest)
    else { return }
    machine?.halt()
    report(.halted(SourceFailure("the last request before the restart has failed").unrepeated))
  }

  /// Notes for the next process whether the last request is not repeated.
  final func noteHalt() {
    guard let name = context.name, !configuration.isIdempotent, let machine else { return }
    thread.pauses.setHalted(machine.isHalted, name, requestDigest)
  }

  override func retracted() {
    guard transfer.map({ !$0.hasBegun }) ?? awaitsToken else { return }
    transfer?.cancel()
    (transfer, sent) = (nil, nil)
    machine?.withdraw(at: now)
  }

  override func end() {
    transfer?.cancel()
    (transfer, sent) = (nil, nil)
  }

  /// Begins a transfer, once it has its token.
  /// - Throws: when the thread has stopped or is out of memory.
  final func start(_ request: UpstreamRequest, _ handler: any Transfer.Handler) throws(SourceFailure) {
    guard let client = thread.httpClient else { throw SourceFailure("the source thread has stopped") }
    guard let oauth2 = configuration.oauth2 else {
      transfer = client.start(request, handler: handler, progress: context.progress)
      return
    }
    (sent, transfer) = ((request, nil, false), nil)
    tokens = thread.tokenSource(oauth2, context.tokenStore)
    awaitToken(handler)
  }

  /// The token of the request, if it has been got for it.
  final var bearer: String? { sent?.token }

  private final var awaitsToken: Bool { sent.map { $0.token == nil } ?? false }

  private final func awaitToken(_ handler: any Transfer.Handler) {
    isRefused = false
    tokens?.withToken(
      waits: { [weak self] reason in if self?.awaitsToken == true { self?.transferWaits(reason) } },
      completed: { [weak self, weak handler] in
        if let handler { self?.received($0, handler) }
      })
  }

  private final func received(_ result: Result<String, SourceFailure>, _ handler: any Transfer.Handler) {
    guard isLive, awaitsToken, var request = sent?.request else { return }
    do throws(SourceFailure) {
      let token = try result.get()
      guard let client = thread.httpClient else { throw SourceFailure("the source thread has stopped") }
      request.bearer = token
      sent?.token = token
      transfer = client.start(request, handler: handler, progress: context.progress)
    } catch {
      sent = nil
      handler.transferEnded(.failure(error))
    }
  }

  /// Takes the status of a response.
  final func note(_ status: Int) {
    guard let token = sent?.token, let tokens else { return }
    isRefused = tokens.isRenewable(token, after: status) && sent?.isSecond == false
  }

  /// Sends a request that has ended with 401 again, once, if its token can be renewed.
  /// - Returns: whether it is sent.
  final func isRenewed(_ handler: any Transfer.Handler) -> Bool {
    guard isRefused, isLive, let request = sent?.request else { return false }
    (sent, transfer) = ((request, nil, true), nil)
    awaitToken(handler)
    return true
  }

  /// Implements the handler's requirement.
  final func transferWaits(_ reason: String) { report(machine?.waits(reason)) }
}
