-- | Contexts: their parameters, their close, and the end of a program that uses them.
module Cases.Contexts (cases, child) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Data.IORef
import Data.List (isPrefixOf)
import Data.Maybe (isJust)
import Data.Primitive.ByteArray
import qualified Data.Vector as V
import qualified Data.Vector.Unboxed as U
import GHC.IO.Exception (IOErrorType (ResourceVanished), ioe_location)
import Support
import System.Directory (getTemporaryDirectory, removeFile)
import System.Environment (getExecutablePath)
import System.Exit
import System.IO (IOMode (WriteMode), hClose, openFile, openTempFile)
import System.IO.BlockIO
import System.IO.Error (catchIOError)
import System.Mem (performMajorGC)
import System.Posix.IO (handleToFd)
import System.Posix.Process (ProcessStatus (..), exitImmediately, forkProcess, getProcessStatus)
import System.Process (readProcessWithExitCode)
import System.Timeout (timeout)

cases :: [Case]
cases =
  [ Case "parameters out of range are refused" parametersAreChecked
  , Case "the driver is named with a reason" driverIsNamed
  , Case "a closed context refuses batches" closedRefuses
  , Case "a second close does nothing" closeIsIdempotent
  , Case "close waits for batches under way" closeWaits
  , Case "close refuses batches on all capabilities before it waits" closeRefusesFirst
  , Case "close races with submitters without loss" closeRaces
  , Case "closed contexts leave no thread and no descriptor" closedLeavesNothing
  , Case "a dropped context is closed by the collector" droppedIsClosed
  , Case "a finalizer finds a dropped context closed" finalizerFindsClosed
  , Case "a program ends with batches under way" endsWithBatches
  , Case "a forked child is refused" forkedChildIsRefused
  ]

parametersAreChecked :: IO ()
parametersAreChecked = forM_ (take 200 (pairs numbers)) $ \(batch, concurrency) -> do
  let params = defaultIOCtxParams {ioctxBatchSizeLimit = batch, ioctxConcurrencyLimit = concurrency}
      valid = batch > 0 && batch < 2 ^ (15 :: Int) && concurrency < 2 ^ (16 :: Int) && batch <= concurrency
      what = show (batch, concurrency)
  outcome <- try (withIOCtx params (const (pure ())))
  case outcome of
    Right () -> assertThat (what ++ " was accepted") valid
    Left e -> do
      assertThat (what ++ ": " ++ show e) (not valid)
      assertThat (show e) ("IOCtxParams are invalid because " `isPrefixOf` ioe_location e)
  where
    pairs (a : b : rest) = (a, b) : pairs rest
    pairs _ = []
    -- Edges, small numbers, and any numbers.
    numbers = [pick kind n | (kind, n) <- zip (randoms 2 4) (randoms 3 maxBound)]
    pick :: Int -> Int -> Int
    pick 0 n = 2 ^ (n `mod` 20) - 1 + n `mod` 3
    pick 1 n = n `mod` 300
    pick 2 n = n `mod` 70000
    pick _ n = if even n then negate n else n

driverIsNamed :: IO ()
driverIsNamed = withIOCtx defaultIOCtxParams $ \io -> do
  text <- ioctxDriver io
  assertThat text ("io_uring: " `isPrefixOf` text || "threads: " `isPrefixOf` text)

closedRefuses :: IO ()
closedRefuses = withPatternFile $ \fd -> do
  io <- initIOCtx defaultIOCtxParams
  closeIOCtx io
  buffer <- newPinnedByteArray fileBlock
  void $ throwsKind ResourceVanished (submitIO io (readBlocks fd buffer [0]))
  void $ throwsKind ResourceVanished (ioctxDriver io)

closeIsIdempotent :: IO ()
closeIsIdempotent = do
  io <- initIOCtx defaultIOCtxParams
  closeIOCtx io
  closeIOCtx io

closeWaits :: IO ()
closeWaits = withPatternFile $ \fd -> do
  io <- initIOCtx defaultIOCtxParams
  batch <- newLongBatch 2000 fd
  end <- newEmptyMVar
  reader <- forkFinally (submitIO io (longOps batch)) (putMVar end)
  until' (waitsInMVar reader)
  closeIOCtx io
  hasRunToItsEnd batch >>= assertEqual "the batch has ended" True
  results <- takeMVar end >>= either throwIO pure
  assertEqual "results" 2000 (U.length results)

closeRefusesFirst :: IO ()
closeRefusesFirst = withPatternFile $ \fd -> do
  io <- initIOCtx defaultIOCtxParams
  capabilities <- getNumCapabilities
  batch <- newLongBatch 200000 fd
  reader <- forkOn 0 (void (submitIO io (longOps batch)))
  until' (waitsInMVar reader)
  closer <- newEmptyMVar
  _ <- forkIO (putMVar closer () >> closeIOCtx io >> putMVar closer ())
  takeMVar closer
  forM_ [0 .. capabilities - 1] $ \capability -> do
    end <- newEmptyMVar
    buffer <- newPinnedByteArray fileBlock
    let untilRefused = submitIO io (readBlocks fd buffer [0]) >> untilRefused
    _ <- forkOn capability (throwsKind ResourceVanished untilRefused >>= putMVar end)
    timeout 10000000 (takeMVar end) >>= assertThat "refused" . isJust
  hasRunToItsEnd batch >>= assertEqual "the batch has run to its end" False
  killThread reader
  takeMVar closer

-- Each batch is either complete or refused, whenever the close comes.
closeRaces :: IO ()
closeRaces = withPatternFile $ \fd -> forM_ [0 .. 49] $ \spins -> do
  io <- initIOCtx defaultIOCtxParams
  ends <- forM [1 .. 8] $ \seed -> do
    end <- newEmptyMVar
    end <$ forkFinally (submitUntilRefused io fd seed) (putMVar end)
  replicateM_ (spins * 10) yield
  closeIOCtx io
  forM_ ends (takeMVar >=> either throwIO pure)
  where
    submitUntilRefused io fd seed = do
      buffer <- newPinnedByteArray (4 * fileBlock)
      let blocks = take 4 (randoms seed fileBlocks)
      outcome <- try (submitIO io (readBlocks fd buffer blocks))
      case outcome of
        Right results -> checkBlocks buffer blocks results >> submitUntilRefused io fd (seed + 8)
        Left e -> assertEqual "the error" "IOCtx closed" (ioe_location e)

closedLeavesNothing :: IO ()
closedLeavesNothing = do
  threads <- threadCount "cringle"
  descriptors <- descriptorCount
  replicateM_ 20 (withIOCtx defaultIOCtxParams (const (pure ())))
  threads' <- threadCount "cringle"
  descriptors' <- descriptorCount
  assertEqual "threads" threads threads'
  assertEqual "descriptors" descriptors descriptors'

droppedIsClosed :: IO ()
droppedIsClosed = withPatternFile $ \fd -> do
  threads <- threadCount "cringle"
  forM_ [1 .. 20] $ \seed -> do
    io <- initIOCtx defaultIOCtxParams
    buffer <- newPinnedByteArray fileBlock
    let blocks = take 1 (randoms seed fileBlocks)
    submitIO io (readBlocks fd buffer blocks) >>= checkBlocks buffer blocks
  performMajorGC
  until' ((== threads) <$> threadCount "cringle")

-- A finalizer that holds a context runs after the context's own: both became unreachable together.
finalizerFindsClosed :: IO ()
finalizerFindsClosed = withPatternFile $ \fd -> do
  start <- newEmptyMVar
  end <- newEmptyMVar
  dropContext fd start end
  performMajorGC
  -- These would use the memory of the dropped context.
  others <- replicateM 4 (initIOCtx defaultIOCtxParams)
  putMVar start ()
  void (takeMVar end)
  buffer <- newPinnedByteArray fileBlock
  forM_ others $ \io -> do
    submitIO io (readBlocks fd buffer [3]) >>= checkBlocks buffer [3]
    closeIOCtx io
  where
    dropContext fd start end = do
      io <- initIOCtx defaultIOCtxParams
      key <- newIORef ()
      void $ mkWeakIORef key $ do
        () <- takeMVar start
        closeIOCtx io
        buffer <- newPinnedByteArray fileBlock
        throwsKind ResourceVanished (submitIO io (readBlocks fd buffer [0])) >>= putMVar end
      readIORef key

-- Children of this program, with batches under way that would take minutes. A batch that ran to its
-- end would have written to the file. The option unmaps what the last collection frees at once, so
-- that a use of freed memory crashes.
endsWithBatches :: IO ()
endsWithBatches = do
  program <- getExecutablePath
  directory <- getTemporaryDirectory
  forM_ [1 .. 3 :: Int] $ \seed -> bracket (openTempFile directory "blockio") (removeFile . fst) $
    \(path, file) -> do
      hClose file
      (status, out, err) <- readProcessWithExitCode program (["child", "ends", show seed, path] ++ rtsOptions) ""
      assertEqual "the child" (ExitSuccess, "waits\n", "") (status, out, err)
      readFile path >>= assertEqual "the file" ""
  where
    rtsOptions = ["+RTS", "--disable-delayed-os-memory-return", "-RTS"]

child :: String -> [String] -> IO ()
child "ends" [seed, path] = withPatternFile $ \fd -> do
  io <- initIOCtx defaultIOCtxParams
  file <- openFile path WriteMode >>= handleToFd
  waiting <- forM [1 .. 2 :: Int] $ \_ -> do
    batch <- newLongBatch 200000 fd
    let write = IOOpWrite file 0 (longBuffer batch) 0 1
    forkIO (void (submitIO io (V.snoc (longOps batch) write)))
  forM_ [1 .. 4] $ \n -> forkIO $ forever $ do
    buffer <- newPinnedByteArray (32 * fileBlock)
    submitIO io (readBlocks fd buffer (take 32 (randoms (n + 4 * read seed) fileBlocks)))
  mapM_ (until' . waitsInMVar) waiting
  putStrLn "waits"
child name arguments = die ("no such child: " ++ unwords (name : arguments))

forkedChildIsRefused :: IO ()
forkedChildIsRefused = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  buffer <- newPinnedByteArray fileBlock
  let submit = submitIO io (readBlocks fd buffer [1])
  pid <- forkProcess $ do
    refused <- (submit >> pure False) `catchIOError` const (pure True)
    exitImmediately (if refused then ExitFailure 42 else ExitSuccess)
  status <- getProcessStatus True False pid
  assertEqual "the child" (Just (Exited (ExitFailure 42))) status
  submit >>= checkBlocks buffer [1]
