-- | Waits, and asynchronous exceptions that end them.
module Cases.Exceptions (cases) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Data.Primitive.ByteArray
import qualified Data.Vector.Unboxed as U
import Data.Word
import Support
import System.IO.BlockIO
import System.Mem (performMajorGC)
import System.Timeout (timeout)

cases :: [Case]
cases =
  [ Case "only the submitting green thread waits" onlyTheSubmitterWaits
  , Case "an exception ends a wait that would not end" exceptionEndsWait
  , Case "timeout works" timeoutWorks
  , Case "after an exception the kernel writes to no buffer" kernelHasFinished
  , Case "an exception under mask waits for the results" maskedStillWaits
  , Case "a killed submitter keeps the others' results" othersKeepResults
  ]

-- With one capability, a wait that blocks it would keep this thread from the kill.
onlyTheSubmitterWaits :: IO ()
onlyTheSubmitterWaits = withPatternFile $ \fd -> do
  capabilities <- getNumCapabilities
  bracket_ (setNumCapabilities 1) (setNumCapabilities capabilities) $
    withIOCtx defaultIOCtxParams $ \io -> do
      batch <- newLongBatch 200000 fd
      reader <- forkIO (void (submitIO io (longOps batch)))
      until' (waitsInMVar reader)
      let blocks = take 8 (randoms 1 fileBlocks)
      buffer <- newPinnedByteArray (8 * fileBlock)
      submitIO io (readBlocks fd buffer blocks) >>= checkBlocks buffer blocks
      killThread reader
      hasRunToItsEnd batch >>= assertEqual "the batch has run to its end" False

exceptionEndsWait :: IO ()
exceptionEndsWait = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  batch <- newLongBatch 200000 fd
  end <- newEmptyMVar
  reader <- forkFinally (submitIO io (longOps batch)) (putMVar end)
  until' (waitsInMVar reader)
  killThread reader
  outcome <- takeMVar end
  case outcome of
    Left e -> assertEqual "the exception" (Just ThreadKilled) (fromException e)
    Right results -> assertEqual "results" 0 (U.length results)
  hasRunToItsEnd batch >>= assertEqual "the batch has run to its end" False

timeoutWorks :: IO ()
timeoutWorks = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  batch <- newLongBatch 200000 fd
  outcome <- timeout 1000 (submitIO io (longOps batch))
  assertEqual "results" Nothing (U.length <$> outcome)
  hasRunToItsEnd batch >>= assertEqual "the batch has run to its end" False

-- Threads are killed at any point of their batches. Afterwards each buffer is set to a pattern: a
-- late write of the kernel would change it, also one into memory that the collector has reused.
kernelHasFinished :: IO ()
kernelHasFinished = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io ->
  forM_ [1 .. 100] $ \seed -> do
    buffers <- replicateM 4 (newPinnedByteArray (32 * fileBlock))
    ends <- forM (zip [seed * 4 ..] buffers) $ \(n, buffer) -> do
      end <- newEmptyMVar
      thread <- forkFinally (forever (submitIO io (readBlocks fd buffer (take 32 (randoms n fileBlocks))))) (putMVar end)
      pure (thread, end :: MVar (Either SomeException ()))
    replicateM_ (head (randoms seed 200)) yield
    forM_ ends $ \(thread, end) -> do
      killThread thread
      outcome <- takeMVar end
      assertEqual "the end" (Just (Just ThreadKilled)) (either (Just . fromException) (const Nothing) outcome)
    forM_ buffers $ \buffer -> setByteArray buffer 0 (32 * fileBlock) (0xaa :: Word8)
    when (seed `mod` 10 == 0) performMajorGC
    forM_ buffers $ \buffer -> forM_ [0, 64 .. 32 * fileBlock - 1] $ \at -> do
      byte <- readByteArray buffer at
      when (byte /= (0xaa :: Word8)) $ assertEqual ("byte " ++ show at) 0xaa byte

-- The kill is pending until the results are there.
maskedStillWaits :: IO ()
maskedStillWaits = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  batch <- newLongBatch 1000 fd
  end <- newEmptyMVar
  reader <- forkIO (uninterruptibleMask_ (submitIO io (longOps batch) >>= putMVar end))
  until' (waitsInMVar reader)
  killThread reader
  hasRunToItsEnd batch >>= assertEqual "the batch has run to its end" True
  results <- takeMVar end
  assertEqual "results" 1000 (U.length results)

othersKeepResults :: IO ()
othersKeepResults = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io ->
  forM_ [1 .. 5] $ \seed -> do
    batch <- newLongBatch 200000 fd
    victim <- forkIO (void (submitIO io (longOps batch)))
    until' (waitsInMVar victim)
    ends <- forM [1 .. 4] $ \n -> do
      end <- newEmptyMVar
      buffer <- newPinnedByteArray (8 * fileBlock)
      let blocks = take 8 (randoms (seed * 4 + n) fileBlocks)
      end <$ forkFinally (submitIO io (readBlocks fd buffer blocks) >>= checkBlocks buffer blocks) (putMVar end)
    killThread victim
    forM_ ends (takeMVar >=> either throwIO pure)
